"""Reads other tools' runs, so that they can be looked at here and warm-start a sweep.

    runs.py      what a reader returns
    optuna.py, wandb.py, mlflow.py, pufferlib.py, trackio.py, ray.py, syne_tune.py, smac.py, neps.py, carbs.py
                 one reader each: `read(Source) -> Imported`, and `is_one(Path)`, whether a path is of the tool

`read` raises `UsageError`, in one line: the place is none of the tool's or is damaged, a package is missing, or one of
several experiments, scores, directions or costs has to be named. Readers touch no store (`protein.api.importing` writes
what they return) and change nothing of what they read.
"""
