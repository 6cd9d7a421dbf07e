"""What each command takes, as dataclasses that tyro turns into flags and help. A field's docstring is its help text.

Durations and sizes stay text here; the commands parse them, so that an error names the flag.
"""

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from protein.cli.values import value_spec

_OF_CONFIG = "(default: the config's)"


def _arg(metavar: str, default: str = "", name: str | None = None) -> object:
    return arg(name=name, metavar=metavar, help_behavior_hint=default)


_SweepName = Positional[Annotated[str | None, _arg("[SWEEP]", "(default: the only sweep of the store)")]]
_Config = Annotated[Path | None, _arg("FILE", "(default: none)")]
_Trackers = Annotated[tuple[str, ...], UseAppendAction, _arg("NAME", "(default: none)")]
_Under = Annotated[str | None, _arg("DURATION", "(default: no limit)")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreArguments:
    """A command that reads or writes a store."""

    store: Annotated[str | None, _arg("URL", "(default: $PROTEIN_STORE, or runs/protein.db)")] = None
    """Where trials are kept: a path, sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepArguments(StoreArguments):
    """Search for good configs under a budget. The same command again resumes the sweep.

    Every value of the run has a flag. Giving one fixes the value: it is not searched."""

    environment: Annotated[str | None, _arg("NAME", "(default: the one that --config names)", "env")] = None
    """Environment to train on; `protein envs` lists them."""
    name: Annotated[str | None, _arg("TEXT", "(default: the environment's)")] = None
    """Name of the sweep, to resume it and to ask for it."""
    max_cost: Annotated[str | None, _arg("DURATION", "(default: what it was before, or no limit)")] = None
    """Budget: the training time of all trials together, as in 90s, 15m, 2h or 1h30m."""
    max_trial_cost: Annotated[str | None, _arg("DURATION", "(default: the config's, or budget / 4)")] = None
    """Cap on the training time of one trial. A trial that reaches it is stopped and is not recommended."""
    max_trials: Annotated[int | None, value_spec(int, "--max-trials"), _arg("INT", "(default: no limit)")] = None
    """Number of trials of the whole sweep, failed ones included."""
    stop_when: Annotated[str | None, _arg("CONDITION", "(default: none)")] = None
    """End the sweep when more training is expected to raise the best score by less, as in 'gain < 0.5 per hour'."""
    max_trial_memory: Annotated[str | None, _arg("SIZE", _OF_CONFIG)] = None
    """Cap on the memory of one trial, as in 4GiB."""
    workers: Annotated[int | None, value_spec(int, "--workers"), _arg("INT", _OF_CONFIG)] = None
    """Trials that run at the same time."""
    pin_cores: Annotated[bool | None, value_spec(bool, "--pin-cores"), _arg("True|False", _OF_CONFIG)] = None
    """Give each of several workers cores of its own, so that trials do not slow each other down."""
    gpus: Annotated[str | None, _arg("ID[,ID...]|all", "(default: the config's, or the trial's choice)")] = None
    """GPUs that trials may use, as nvidia-smi counts them, or MIG ids. Without --workers, all of them are used."""
    gpus_per_trial: Annotated[int | None, value_spec(int, "--gpus-per-trial"), _arg("INT", _OF_CONFIG)] = None
    """GPUs that one trial gets. It trains with a process on each."""
    trials_per_gpu: Annotated[int | None, value_spec(int, "--trials-per-gpu"), _arg("INT", _OF_CONFIG)] = None
    """Trials that may share a GPU."""
    max_trial_gpu_memory: Annotated[str | None, _arg("SIZE", _OF_CONFIG)] = None
    """Cap on the GPU memory of one trial, as in 8GiB."""
    method: Annotated[str | None, _arg("TEXT", _OF_CONFIG)] = None
    """protein (cost-aware Bayesian search), random, or one of Optuna's samplers, as optuna:tpe."""
    warm_start: Annotated[str | None, _arg("SWEEP[,SWEEP...]", "(default: none)")] = None
    """Learn from other sweeps of the store, as far as this sweep's own trials agree with them; all: from every one."""
    seed: Annotated[int | None, value_spec(int, "--seed"), _arg("INT", _OF_CONFIG)] = None
    """Source of the sweep's randomness."""
    early_stopping: Annotated[bool | None, value_spec(bool, "--early-stopping"), _arg("True|False", _OF_CONFIG)] = None
    """Stop expensive trials whose learning curve is worse than those of similar trials."""
    continue_trials: Annotated[bool | None, value_spec(bool, "--continue-trials"), _arg("True|False", _OF_CONFIG)] = (
        None
    )
    """Let finished trials go on to more steps. That needs a train.lr_schedule of constant or wsd."""
    calibrate: Annotated[
        bool | None, value_spec(bool, "--calibrate"), _arg("True|False", "(default: where machines share the store)")
    ] = None
    """Measure once how fast this machine trains, so that costs of several machines are in seconds of the first one."""
    until: Annotated[str | None, _arg("TIME", "(default: no end)")] = None
    """Start no trial that is not expected to end by then, as in 08:00 or 2026-11-23T08:00; what runs waits then."""
    on_finish: Annotated[str | None, _arg("COMMAND", "(default: none)")] = None
    """Run this line of the shell when the sweep has ended by itself; $PROTEIN_REASON and others tell it the facts."""
    on_trouble: Annotated[str | None, _arg("COMMAND", "(default: none)")] = None
    """Run this line of the shell when something is wrong: failures in a row, an error, little disk or memory."""
    tracker: _Trackers = ()
    """Also write the trials to mlflow, neptune, wandb, tensorboard or trackio. Give it several times for several."""
    config: _Config = None
    """Your own config file: TOML, or a run's config.json. It overrides configs/default.toml and the environment's."""

    backend: Annotated[str, _arg("local|ray[:HOST:PORT]|slurm")] = "local"
    """Where trials run: on this machine, on the nodes of a Ray cluster, or in jobs of Slurm."""
    artifacts: Annotated[str | None, _arg("DIR|URL", "(default: beside the store)")] = None
    """Where trials keep their files: a folder that all machines share, or a URL such as s3://BUCKET/FOLDER."""
    trial_cores: Annotated[int | None, value_spec(int, "--trial-cores"), _arg("INT", "(default: 1)")] = None
    """With --backend ray or slurm: processor cores of one trial."""
    resources: Annotated[str | None, _arg("JSON", "(default: none)")] = None
    """With --backend ray: custom resources of Ray that one trial needs, as in '{"A100": 1}'."""
    slurm_options: Annotated[str | None, _arg("TEXT", "(default: none)")] = None
    """With --backend slurm: options for sbatch, as in '--partition=gpu --time=4:00:00'."""

    command: Annotated[str | None, _arg("TEXT", "(default: our trainer)")] = None
    """Sweep any program: its command line, with {placeholders} for parameters, {seed} and {directory}."""
    space: Annotated[Path | None, _arg("FILE", "(default: none)")] = None
    """With --command: what is searched. TOML, the YAML file of a W&B sweep, or PufferLib's .ini."""
    params: Annotated[str | None, _arg("flags|dashes|json|env", "(default: by placeholders, else flags)")] = None
    """With --command: how the program gets parameters without a placeholder."""
    score_regex: Annotated[str | None, _arg("REGEX", "(default: JSON lines)")] = None
    """With --command: read the score from the program's log, as in 'reward: (\\S+)'."""
    steps_regex: Annotated[str | None, _arg("REGEX", "(default: none)")] = None
    """With --score-regex: read the steps from the program's log."""
    score_csv: Annotated[str | None, _arg("FILE:COLUMN[,STEPS]", "(default: none)")] = None
    """With --command: read the score from a CSV file in the trial's folder, as in progress.csv:reward,steps."""
    score_tensorboard: Annotated[str | None, _arg("TAG", "(default: none)")] = None
    """With --command: read the score from event files of TensorBoard in the trial's folder."""
    direction: Annotated[str | None, _arg("maximize|minimize", "(default: the space file's, or maximize)")] = None
    """With --command: whether a higher or a lower score is better."""
    resume_flag: Annotated[str | None, _arg("TEXT", "(default: none)")] = None
    """With --command: words for an interrupted trial that goes on, as in '--resume {checkpoint}'."""
    chdir: Annotated[str | None, _arg("DIR", "(default: this folder)")] = None
    """With --command: folder in which the program runs; {directory} is the trial's own."""
    max_silence: Annotated[str | None, _arg("DURATION", "(default: 1h)")] = None
    """With --command: end a trial that writes nothing for so long."""
    accept_changes: Annotated[bool, arg(help_behavior_hint="")] = False
    """Go on with a sweep whose command is run or read in another way now. What is searched must be the same."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainArguments(StoreArguments):
    """Train one agent, from the config files or from the best trial of a sweep."""

    environment: Annotated[
        str | None, _arg("NAME", "(default: the sweep's, or the one that --config names)", "env")
    ] = None
    """Environment to train on; `protein envs` lists them."""
    resume: Annotated[Path | None, _arg("RUN", "(default: none)")] = None
    """Go on with an interrupted run: its folder in runs/train, or its checkpoint. It takes its config from there."""
    from_: Annotated[str | None, _arg("SWEEP", "(default: none)", "from")] = None
    """Take the config that this sweep recommends (see protein best)."""
    under: _Under = None
    """With --from: the best among configs that are expected to cost at most this much training time, as in 30s."""
    config: _Config = None
    """Your own config file: TOML, or a run's config.json. It overrides configs/default.toml and the environment's."""
    checkpoint: Annotated[Path | None, _arg("FILE", "(default: none)")] = None
    """Where to put a copy of the final checkpoint. The run's own folder in runs/train holds it in any case."""
    nproc: Annotated[int, value_spec(int, "--nproc"), _arg("INT", "(default: 1)")] = 1
    """Processes that train together on this machine. Each takes its share of the environments and of the batch."""
    profile: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print at the end where the time went. On a GPU each step then waits for the device, which is slower."""
    trace: Annotated[Path | None, _arg("FILE", "(default: none)")] = None
    """Write the last intervals of the profile as a Chrome trace, for ui.perfetto.dev or chrome://tracing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalArguments:
    """Play episodes with a trained agent and report its score."""

    checkpoint: Annotated[Path | None, _arg("FILE", "(required)")] = None
    """A checkpoint that protein train has written."""
    environment: Annotated[str | None, _arg("NAME", "(default: the checkpoint's)", "env")] = None
    """Environment to play."""
    episodes: Annotated[
        int | None, value_spec(int, "--episodes"), _arg("INT", "(default: 256; 1 with --render or --gif)")
    ] = None
    """Episodes to play."""
    seed: Annotated[int, value_spec(int, "--seed")] = 0
    """Source of the episodes' randomness."""
    greedy: Annotated[bool, arg(help_behavior_hint="")] = False
    """Take the most probable action instead of sampling."""
    render: Annotated[bool, arg(help_behavior_hint="")] = False
    """Watch one environment in the terminal, and write what was seen as a GIF."""
    gif: Annotated[Path | None, _arg("FILE", "(default: with --render, beside the checkpoint)")] = None
    """Where to write the GIF. Without --render nothing is shown in the terminal."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatusArguments(StoreArguments):
    """Show how far sweeps are: all of them, or one with what more training is expected to change."""

    sweep: Positional[Annotated[str | None, _arg("[SWEEP]", "(default: all)")]] = None
    """Name of a sweep."""
    watch: Annotated[bool, arg(help_behavior_hint="")] = False
    """Go on showing it, until Ctrl-C."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParetoArguments(StoreArguments):
    """Show a sweep's Pareto fronts: the best score for every cost, as measured and as expected without luck."""

    sweep: _SweepName = None
    """Name of the sweep."""
    png: Annotated[Path | None, _arg("FILE", "(default: none)")] = None
    """Also draw the front into this PNG file."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestArguments(StoreArguments):
    """Show the config with the best expected score, the knee, and the commands that train them."""

    sweep: _SweepName = None
    """Name of the sweep."""
    under: _Under = None
    """Also show the best among configs that are expected to cost at most this much training time, as in 30s."""
    write: Annotated[Path | None, _arg("FILE", "(default: none)")] = None
    """Also write the config as a short TOML file for --config, with comments. With --ladder: FILE_10s, FILE_1m, ..."""
    ladder: Annotated[str | None, _arg("DURATION[,DURATION...]", "(default: none)")] = None
    """Write the best config under each of these limits, as in 10s,1m,10m. The files begin with the sweep's name."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LawsArguments(StoreArguments):
    """Show how each parameter's best value changes with cost, and the config to try at a larger cost."""

    sweep: _SweepName = None
    """Name of the sweep."""
    at: Annotated[str | None, _arg("DURATION", "(default: none)")] = None
    """Also show the config to try at this cost, as in 8h. It may be far above that of the largest trial."""
    write: Annotated[Path | None, _arg("FILE", "(default: none)")] = None
    """With --at: also write the config as a short TOML file for --config, with comments."""
    png: Annotated[Path | None, _arg("FILE", "(default: none)")] = None
    """Also draw the laws into this PNG file."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowArguments(StoreArguments):
    """Show a sweep's trials, everything about one of them, or how good the engine's predictions were."""

    sweep: _SweepName = None
    """Name of the sweep."""
    trial: Annotated[int | None, value_spec(int, "--trial"), _arg("INT", "(default: all)")] = None
    """Number of a trial."""
    calibration: Annotated[bool, arg(help_behavior_hint="")] = False
    """Compare predicted with measured scores and costs, and draw a picture into the sweep's folder."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareArguments(StoreArguments):
    """Compare two or more sweeps: best score, hypervolume, and how soon it was found, with intervals over seeds.

    Sweeps whose names differ in a seed or an environment only, such as old-pong-1 and old-maze-2, are one side."""

    sweeps: Positional[Annotated[tuple[str, ...], _arg("SWEEP SWEEP ...", "(required)")]] = ()
    """Names of sweeps. Where one is a pattern ('old-*') or a list (a,b,c), each argument is a side."""
    env: Annotated[str | None, _arg("NAME[,NAME...]", "(default: all that the sides have in common)")] = None
    """Environments to compare in."""
    reference: Annotated[str | None, _arg("SIDE", "(default: the first)")] = None
    """The side that the others are compared with."""
    each: Annotated[bool, arg(help_behavior_hint="")] = False
    """Make every sweep a side of its own."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportArguments(StoreArguments):
    """Write one or several sweeps as one HTML file: the pages of protein view, to send or to keep."""

    sweeps: Positional[Annotated[tuple[str, ...], _arg("[SWEEP ...]", "(default: the only sweep of the store)")]] = ()
    """Names of sweeps."""
    output: Annotated[
        Path | None, arg(metavar="FILE", help_behavior_hint="(default: the sweep's name with .html)", aliases=["-o"])
    ] = None
    """The file. It needs no server and no network, and holds no path of this machine."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotArguments(StoreArguments):
    """Draw a picture of one or several sweeps.

    KIND is front (score against cost), curves (learning curves), parallel (the parameters, a line a trial), importance
    (which parameters matter) or compare (sweeps over each other)."""

    what: Positional[
        Annotated[tuple[str, ...], _arg("KIND [SWEEP ...]", "(default: the only sweep of the store)")]
    ] = ()
    """What to plot, and the sweeps."""
    output: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: KIND.png)", aliases=["-o"])] = None
    """The picture. Its ending says which kind of file: .png, .svg or .pdf."""
    x: Annotated[str | None, _arg("seconds|steps|fraction", "(default: seconds)")] = None
    """Curves: what they run over."""
    trials: Annotated[str | None, _arg("INT[,INT...]", "(default: those of the front)")] = None
    """Curves: the trials to draw in color."""
    by: Annotated[str | None, _arg("PARAMETER", "(default: none)")] = None
    """Curves: the parameter whose value gives the color of a curve."""
    log_x: Annotated[bool, arg(help_behavior_hint="")] = False
    """Curves: draw them over a logarithmic axis."""
    smooth: Annotated[float | None, value_spec(float, "--smooth"), _arg("FLOAT", "(default: 0)")] = None
    """Curves: weight of the past in an exponential mean, from 0 to below 1."""
    params: Annotated[str | None, _arg("NAME[,NAME...]", "(default: up to 10 in which trials differ)")] = None
    """Parallel: the parameters to draw, in this order."""
    target: Annotated[str | None, _arg("score|cost", "(default: score)")] = None
    """Importance: for what the parameters matter."""
    env: Annotated[str | None, _arg("NAME[,NAME...]", "(default: all that the sides have in common)")] = None
    """Compare: the environments."""
    reference: Annotated[str | None, _arg("SIDE", "(default: the first)")] = None
    """Compare: the side that is drawn first."""
    each: Annotated[bool, arg(help_behavior_hint="")] = False
    """Compare: make every sweep a side of its own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvsArguments:
    """List the environments."""

    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DoctorArguments(StoreArguments):
    """Check that this machine has what is needed, and whether something slows it down."""

    calibrate: Annotated[bool, arg(help_behavior_hint="")] = False
    """Measure how fast this machine trains, in about ten seconds, and keep the result in the store."""
    workers: Annotated[int, value_spec(int, "--workers"), _arg("INT", "(default: 1)")] = 1
    """Trials that will run here at the same time: the calibration uses the cores that each of them gets."""
    device: Annotated[str, _arg("DEVICE", "(default: auto)")] = "auto"
    """Device of the trials, as in train.device."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ViewArguments(StoreArguments):
    """Look at sweeps in the browser: a page of this machine, live while they run."""

    of: Positional[Annotated[str | None, _arg("[STORE]", "(default: $PROTEIN_STORE, or runs/protein.db)")]] = None
    """The store to show: a path, sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE."""
    port: Annotated[int | None, value_spec(int, "--port"), _arg("INT", "(default: 8742, or a free one)")] = None
    """Port to listen on."""
    host: Annotated[str, _arg("ADDRESS", "(default: 127.0.0.1)")] = "127.0.0.1"
    """Address to listen on. One that other machines can reach needs --token."""
    token: Annotated[bool, arg(help_behavior_hint="")] = False
    """Make a token, without which the server answers nobody. It is printed once, in the address."""
    open: Annotated[bool, arg(help_behavior_hint="")] = False
    """Open the page in the browser."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoteArguments(StoreArguments):
    """Tag a trial, write a note on it, or exclude it, so that the engine ignores it and nothing recommends it."""

    sweep: _SweepName = None
    """Name of the sweep."""
    trial: Annotated[str | None, _arg("INT[,INT...]", "(required)")] = None
    """Number of the trial, or numbers of several."""
    tag: Annotated[str | None, _arg("TEXT[,TEXT...]", "(default: none)")] = None
    """Tags to add."""
    untag: Annotated[str | None, _arg("TEXT[,TEXT...]", "(default: none)")] = None
    """Tags to take away."""
    note: Annotated[str | None, _arg("TEXT", "(default: as it is)")] = None
    """The note, which replaces the one before; an empty one removes it."""
    exclude: Annotated[bool, arg(help_behavior_hint="")] = False
    """From the next suggestion on, the engine learns nothing from the trial. A running sweep follows, too."""
    include: Annotated[bool, arg(help_behavior_hint="")] = False
    """Take an exclusion back."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PauseArguments(StoreArguments):
    """Start no more trials of a sweep until it is resumed. Its process goes on waiting, and running trials go on."""

    sweep: _SweepName = None
    """Name of the sweep."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumeArguments(StoreArguments):
    """Let a paused sweep start trials again. It does not start the sweep's process; protein sweep does."""

    sweep: _SweepName = None
    """Name of the sweep."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StopArguments(StoreArguments):
    """End the process that runs a sweep, from any terminal, as its Ctrl-C would. protein sweep resumes it."""

    sweep: _SweepName = None
    """Name of the sweep."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CancelArguments(StoreArguments):
    """End trials that run or wait, from any terminal or machine. They count as interrupted and are not tried again."""

    sweep: _SweepName = None
    """Name of the sweep."""
    trial: Annotated[str | None, _arg("INT[,INT...]", "(required)")] = None
    """Number of the trial, or numbers of several."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyncArguments(StoreArguments):
    """Write a sweep's trials to a tracker: all that it does not have yet."""

    sweep: _SweepName = None
    """Name of the sweep."""
    tracker: _Trackers = ()
    """mlflow, neptune, wandb, tensorboard or trackio. Give it several times for several."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImportArguments(StoreArguments):
    """Take over the runs of another tool as a sweep, to look at them and to start warm from them.

    The same command again adds the runs that are new."""

    tool: Positional[Annotated[str | None, _arg("[TOOL]", "(required)")]] = None
    """optuna, wandb, mlflow or pufferlib."""
    source: Positional[Annotated[str | None, _arg("[SOURCE]", "(required)")]] = None
    """URL or file of a study's storage or of MLflow, a CSV file (wandb), a folder of logs (pufferlib)."""
    name: Annotated[str | None, _arg("TEXT", "(default: like the experiment's)")] = None
    """Name of the sweep."""
    experiment: Annotated[str | None, _arg("TEXT", "(default: the only one)")] = None
    """The study or the experiment, where the source holds several."""
    score: Annotated[str | None, _arg("METRIC", "(default: what the tool names)")] = None
    """The metric that counts."""
    direction: Annotated[str | None, _arg("maximize|minimize", "(default: what the tool names)")] = None
    """Whether a higher score is better."""
    cost: Annotated[str | None, _arg("METRIC", "(default: the run's duration)")] = None
    """What a run cost in seconds; the word equal stands for one second each."""
    params: Annotated[str | None, _arg("COLUMN[,COLUMN...]", "(default: all that may be)")] = None
    """wandb: the columns that are parameters. Its file does not tell them from metrics."""
    rename: Annotated[tuple[str, ...], UseAppendAction, _arg("OLD=NEW", "(default: none)")] = ()
    """Another name for a parameter, as in lr=train.learning_rate. Give it several times for several."""
    space: Annotated[str | None, _arg("FILE", "(default: what the runs show)")] = None
    """Ranges in the form of configs/*.toml."""
    cost_parameter: Annotated[str | None, _arg("NAME", "(default: what the tool names)")] = None
    """The parameter that makes a run expensive, as train.total_timesteps does."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""
