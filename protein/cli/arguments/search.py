"""Arguments of the commands that search and train: sweep, train, eval."""

import dataclasses
from pathlib import Path
from typing import Annotated

from protein.cli.arguments.shared import OF_CONFIG, Config, StoreArguments, Switch, Trackers, Under, shown
from protein.cli.values import value_spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepArguments(StoreArguments):
    """Search for good configs under a budget. The same command again resumes the sweep.

    Every value of the run has a flag. Giving one fixes the value: it is not searched. The flags of a language model's
    settings are shown with --env text/python or --config configs/gpt.toml."""

    environment: Annotated[str | None, shown("NAME", "(default: the one that --config names)", "env")] = None
    """Environment to train on; `protein envs` lists them. text/python: a language model of the built-in text."""
    name: Annotated[str | None, shown("TEXT", "(default: the environment's)")] = None
    """Name of the sweep, to resume it and to ask for it."""
    max_cost: Annotated[str | None, shown("DURATION", "(default: what it was before, or no limit)")] = None
    """Budget: the training time of all trials together, as in 90s, 15m, 2h or 1h30m."""
    max_trial_cost: Annotated[str | None, shown("DURATION", "(default: the config's, or budget / 4)")] = None
    """Cap on the training time of one trial. A trial that reaches it is stopped and is not recommended."""
    max_trials: Annotated[int | None, value_spec(int, "--max-trials"), shown("INT", "(default: no limit)")] = None
    """Number of trials of the whole sweep, failed ones included."""
    stop_when: Annotated[str | None, shown("CONDITION", "(default: none)")] = None
    """End the sweep when more training is expected to raise the best score by less, as in 'gain < 0.5 per hour'."""
    max_trial_memory: Annotated[str | None, shown("SIZE", OF_CONFIG)] = None
    """Cap on the memory of one trial, as in 4GiB."""
    workers: Annotated[int | None, value_spec(int, "--workers"), shown("INT", OF_CONFIG)] = None
    """Trials that run at the same time."""
    pin_cores: Annotated[bool | None, value_spec(bool, "--pin-cores"), shown("True|False", OF_CONFIG)] = None
    """Give each of several workers cores of its own, so that trials do not slow each other down."""
    gpus: Annotated[str | None, shown("ID[,ID...]|all", "(default: the config's, or the trial's choice)")] = None
    """GPUs that trials may use, as nvidia-smi counts them, or MIG ids. Without --workers, all of them are used."""
    gpus_per_trial: Annotated[int | None, value_spec(int, "--gpus-per-trial"), shown("INT", OF_CONFIG)] = None
    """GPUs that one trial gets. It trains with a process on each."""
    trials_per_gpu: Annotated[int | None, value_spec(int, "--trials-per-gpu"), shown("INT", OF_CONFIG)] = None
    """Trials that may share a GPU."""
    max_trial_gpu_memory: Annotated[str | None, shown("SIZE", OF_CONFIG)] = None
    """Cap on the GPU memory of one trial, as in 8GiB."""
    method: Annotated[str | None, shown("TEXT", OF_CONFIG)] = None
    """protein (cost-aware Bayesian search), random, or one of Optuna's samplers, as optuna:tpe."""
    warm_start: Annotated[str | None, shown("SWEEP[,SWEEP...]", "(default: none)")] = None
    """Learn from other sweeps of the store, as far as this sweep's own trials agree with them; all: from every one."""
    seed: Annotated[int | None, value_spec(int, "--seed"), shown("INT", OF_CONFIG)] = None
    """Source of the sweep's randomness."""
    early_stopping: Annotated[bool | None, value_spec(bool, "--early-stopping"), shown("True|False", OF_CONFIG)] = None
    """Stop expensive trials whose learning curve is worse than those of similar trials."""
    continue_trials: Annotated[bool | None, value_spec(bool, "--continue-trials"), shown("True|False", OF_CONFIG)] = (
        None
    )
    """Let finished trials go on to more steps. That needs a train.lr_schedule of constant or wsd."""
    calibrate: Annotated[
        bool | None, value_spec(bool, "--calibrate"), shown("True|False", "(default: where machines share the store)")
    ] = None
    """Measure once how fast this machine trains, so that costs of several machines are in seconds of the first one."""
    until: Annotated[str | None, shown("TIME", "(default: no end)")] = None
    """Start no trial that is not expected to end by then, as in 08:00 or 2026-11-23T08:00; what runs waits then."""
    on_finish: Annotated[str | None, shown("COMMAND", "(default: none)")] = None
    """Run this line of the shell when the sweep has ended by itself; $PROTEIN_REASON and others tell it the facts."""
    on_trouble: Annotated[str | None, shown("COMMAND", "(default: none)")] = None
    """Run this line of the shell when something is wrong: failures in a row, an error, little disk or memory."""
    tracker: Trackers = ()
    """Also write the trials to mlflow, neptune, wandb, tensorboard or trackio. Give it several times for several."""
    config: Config = None
    """Your own config file: TOML, or a run's config.json. It overrides configs/default.toml and the environment's.
    One with [data] or [model] trains a language model, and overrides configs/gpt.toml."""

    backend: Annotated[str, shown("local|ray[:HOST:PORT]|slurm")] = "local"
    """Where trials run: on this machine, on the nodes of a Ray cluster, or in jobs of Slurm."""
    artifacts: Annotated[str | None, shown("DIR|URL", "(default: beside the store)")] = None
    """Where trials keep their files: a folder that all machines share, or a URL such as s3://BUCKET/FOLDER."""
    trial_cores: Annotated[int | None, value_spec(int, "--trial-cores"), shown("INT", "(default: 1)")] = None
    """With --backend ray or slurm: processor cores of one trial."""
    resources: Annotated[str | None, shown("JSON", "(default: none)")] = None
    """With --backend ray: custom resources of Ray that one trial needs, as in '{"A100": 1}'."""
    slurm_options: Annotated[str | None, shown("TEXT", "(default: none)")] = None
    """With --backend slurm: options for sbatch, as in --slurm-options='--partition=gpu --time=4:00:00'."""

    command: Annotated[str | None, shown("TEXT", "(default: our trainer)")] = None
    """Sweep any program: its command line, with {placeholders} for parameters, {seed} and {directory}."""
    space: Annotated[Path | None, shown("FILE", "(default: none)")] = None
    """With --command: what is searched. TOML, the YAML file of a W&B sweep, or PufferLib's .ini."""
    params: Annotated[str | None, shown("flags|dashes|json|env", "(default: by placeholders, else flags)")] = None
    """With --command: how the program gets parameters without a placeholder."""
    score_regex: Annotated[str | None, shown("REGEX", "(default: JSON lines)")] = None
    """With --command: read the score from the program's log, as in 'reward: (\\S+)'."""
    steps_regex: Annotated[str | None, shown("REGEX", "(default: none)")] = None
    """With --score-regex: read the steps from the program's log."""
    score_csv: Annotated[str | None, shown("FILE:COLUMN[,STEPS]", "(default: none)")] = None
    """With --command: read the score from a CSV file in the trial's folder, as in progress.csv:reward."""
    score_tensorboard: Annotated[str | None, shown("TAG", "(default: none)")] = None
    """With --command: read the score from event files of TensorBoard in the trial's folder."""
    direction: Annotated[str | None, shown("maximize|minimize", "(default: the space file's, or maximize)")] = None
    """With --command: whether a higher or a lower score is better."""
    resume_flag: Annotated[str | None, shown("TEXT", "(default: none)")] = None
    """With --command: words for an interrupted trial that goes on, as in '--resume {checkpoint}'."""
    chdir: Annotated[str | None, shown("DIR", "(default: this folder)")] = None
    """With --command: folder in which the program runs; {directory} is the trial's own."""
    max_silence: Annotated[str | None, shown("DURATION", "(default: 1h)")] = None
    """With --command: end a trial that writes nothing for so long."""
    accept_changes: Switch = False
    """Go on with a sweep whose command is run or read in another way now. What is searched must be the same."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainArguments(StoreArguments):
    """Train one agent or language model, from the config files or from the best trial of a sweep.

    The flags of a language model's settings are shown with --env text/python or --config configs/gpt.toml."""

    environment: Annotated[
        str | None, shown("NAME", "(default: the sweep's, or the one that --config names)", "env")
    ] = None
    """Environment to train on; `protein envs` lists them. text/python: a language model of the built-in text."""
    resume: Annotated[Path | None, shown("RUN", "(default: none)")] = None
    """Go on with an interrupted run: its folder in runs/train, or its checkpoint. It takes its config from there."""
    from_: Annotated[str | None, shown("SWEEP", "(default: none)", "from")] = None
    """Take the config that this sweep recommends (see protein best)."""
    under: Under = None
    """With --from: the best among configs that are expected to cost at most this much training time, as in 30s."""
    config: Config = None
    """Your own config file: TOML, or a run's config.json. It overrides configs/default.toml and the environment's.
    One with [data] or [model] trains a language model, and overrides configs/gpt.toml."""
    checkpoint: Annotated[Path | None, shown("FILE", "(default: none)")] = None
    """Where to put a copy of the final checkpoint. The run's own folder in runs/train holds it in any case."""
    nproc: Annotated[int, value_spec(int, "--nproc"), shown("INT", "(default: 1)")] = 1
    """Processes that train together on this machine. Each takes its share of the batch (and of the environments)."""
    profile: Switch = False
    """Print at the end where the time went. On a GPU each step then waits for the device, which is slower."""
    trace: Annotated[Path | None, shown("FILE", "(default: none)")] = None
    """Write the last intervals of the profile as a Chrome trace, for ui.perfetto.dev or chrome://tracing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalArguments:
    """Play episodes with a trained agent and report its score; or measure a language model, or let it write.

    A language model is measured on validation text. With --prompt it writes instead."""

    checkpoint: Annotated[Path | None, shown("RUN", "(required)")] = None
    """The folder of a run or of a trial, or a checkpoint file; or a folder of GPT-2's weights, config.json and
    model.safetensors."""
    environment: Annotated[str | None, shown("NAME", "(default: the checkpoint's)", "env")] = None
    """Environment to play; for a language model, text/NAME as it was trained on. Code in Python that a checkpoint
    names, an environment or an own network, is run only with --env."""
    episodes: Annotated[
        int | None, value_spec(int, "--episodes"), shown("INT", "(default: 256; 1 with --render or --gif)")
    ] = None
    """Episodes to play."""
    seed: Annotated[int, value_spec(int, "--seed")] = 0
    """Source of the episodes' randomness."""
    greedy: Switch = False
    """Take the most probable action, or token, instead of sampling."""
    render: Switch = False
    """Watch one environment in the terminal, and write what was seen as a GIF."""
    gif: Annotated[Path | None, shown("FILE", "(default: with --render, beside the checkpoint)")] = None
    """Where to write the GIF. Without --render nothing is shown in the terminal."""
    prompt: Annotated[str | None, shown("TEXT", "(default: none)")] = None
    """With a language model: print a text that begins so, and as it goes on."""
    tokens: Annotated[
        int | None,
        value_spec(int, "--tokens"),
        shown("INT", "(default: 256 with --prompt, else the run's eval.tokens)"),
    ] = None
    """With a language model: tokens to write, or to measure on."""
    temperature: Annotated[float | None, value_spec(float, "--temperature"), shown("FLOAT", "(default: 0.8)")] = None
    """With --prompt: below 1 it writes what is more probable, above 1 what is more surprising."""
    data: Annotated[str | None, shown("FOLDER", "(default: the run's data.path)")] = None
    """With a language model: the text to measure on, a folder of tokens (or python, the built-in text)."""
    hellaswag: Annotated[Path | None, shown("FILE", "(default: none)")] = None
    """With a language model: also ask it HellaSwag's questions, as in hellaswag_val.jsonl."""
    json: Switch = False
    """Print JSON."""
