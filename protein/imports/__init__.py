"""Reads other tools' runs, so that they can be looked at here and warm-start a sweep.

    runs.py      what a reader returns
    spaces.py    a space from the values of the runs, or from a file
    optuna.py, wandb.py, mlflow.py, pufferlib.py    one reader each: `read(Source) -> Imported`

Readers touch no store (`protein.api.importing` writes what they return) and change nothing of what they read.
"""
