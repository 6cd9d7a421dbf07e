"""What each command takes, as dataclasses that tyro turns into flags and help. A field's docstring is its help text.

What several of them take comes first, then the commands in the groups of `protein --help`. Durations and sizes stay
text here; the commands parse them, so that an error names the flag.
"""

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from protein.cli.values import optional_count, value_spec


def shown(metavar: str, default: str = "", name: str | None = None, short: str | None = None) -> object:
    """Returns how the help shows a flag: its value, what holds without it, another name, a short name."""
    return arg(name=name, metavar=metavar, help_behavior_hint=default, aliases=None if short is None else [short])


OF_CONFIG = "(default: the config's)"
Switch = Annotated[bool, arg(help_behavior_hint="")]  # given or not: it takes no value
Config = Annotated[Path | None, shown("FILE", "(default: none)")]
Artifacts = Annotated[Path | None, shown("DIR", "(default: beside the store)")]
Trackers = Annotated[tuple[str, ...], UseAppendAction, shown("NAME", "(default: none)")]
Under = Annotated[str | None, shown("DURATION", "(default: no limit)")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreArguments:
    """A command that reads or writes a store."""

    store: Annotated[str | None, shown("URL", "(default: $PROTEIN_STORE, or runs/protein.db)")] = None
    """Where trials are kept: a path, sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneSweepArguments(StoreArguments):
    """A command about one sweep of a store."""

    sweep: Positional[Annotated[str | None, shown("[SWEEP]", "(default: the only sweep of the store)")]] = None
    """Name of the sweep."""


# Search and train.


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
    require: Annotated[tuple[str, ...], UseAppendAction, shown("LIMIT", "(default: the config's, or none)")] = ()
    """A limit on what trials measure beside the score, as in 'memory_gb <= 8'; none: no limits any more. Give it
    several times for several. The search keeps them, and so does what is recommended."""
    stop_when: Annotated[str | None, shown("CONDITION", "(default: none)")] = None
    """End the sweep when a trial meets this, as in 'score >= 20', or when little more is expected, as in
    'gain < 0.5 per hour'."""
    confirm_share: Annotated[str | None, shown("SHARE", "(default: the config's, or 0%)")] = None
    """Keep this share of the budget, as in 10%, to run the best contenders again when the search is over."""
    max_trial_memory: Annotated[str | None, shown("SIZE", OF_CONFIG)] = None
    """Cap on the memory of one trial, as in 4GiB."""
    min_free_disk: Annotated[str | None, shown("SIZE", "(default: the config's, or 512MiB)")] = None
    """No trial starts while less is free on the disk of the store or of the sweep's folder, as in 100MiB."""
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
    on_trial: Annotated[str | None, shown("COMMAND", "(default: none)")] = None
    """Run this line of the shell after each trial; $PROTEIN_TRIAL, $PROTEIN_SCORE and others tell it the facts."""
    on_finish: Annotated[str | None, shown("COMMAND", "(default: none)")] = None
    """Run this line of the shell when the sweep has ended by itself; $PROTEIN_REASON and others tell it the facts."""
    on_trouble: Annotated[str | None, shown("COMMAND", "(default: none)")] = None
    """Run this line of the shell when something is wrong: failures in a row, an error, little disk or memory."""
    tracker: Trackers = ()
    """Also write the trials to mlflow, neptune, wandb, tensorboard or trackio. Give it several times for several."""
    config: Config = None
    """Your own config file: TOML, or a run's config.json. It overrides configs/default.toml and the environment's.
    One with [data] or [model] trains a language model, and overrides configs/gpt.toml."""

    backend: Annotated[str, shown("local|ray[:HOST:PORT]|slurm|folder[:DIR]")] = "local"
    """Where trials run: on this machine, on the nodes of a Ray cluster, in jobs of Slurm, or on machines that join by
    protein worker DIR."""
    artifacts: Annotated[str | None, shown("DIR|URL", "(default: beside the store)")] = None
    """Where trials keep their files: a folder that all machines share, or a URL such as s3://BUCKET/FOLDER."""
    trial_cores: Annotated[int | None, value_spec(int, "--trial-cores"), shown("INT", "(default: 1)")] = None
    """With --backend ray, slurm or folder: processor cores of one trial."""
    resources: Annotated[str | None, shown("JSON", "(default: none)")] = None
    """With --backend ray: custom resources of Ray that one trial needs, as in '{"A100": 1}'."""
    slurm_options: Annotated[str | None, shown("TEXT", "(default: none)")] = None
    """With --backend slurm: options for sbatch, as in --slurm-options='--partition=gpu --time=4:00:00'."""

    command: Annotated[str | None, shown("TEXT", "(default: our trainer)")] = None
    """Sweep any program: its command line, with {placeholders}, switches as {amp?--amp}, {seed} and {directory}."""
    space: Annotated[Path | None, shown("FILE", "(default: none)")] = None
    """With --command: what is searched. TOML, the YAML file of a W&B sweep, PufferLib's .ini, or JSON: a space of
    Ray Tune, Optuna or ConfigSpace."""
    params: Annotated[str | None, shown("flags|dashes|json|env", "(default: by placeholders, else flags)")] = None
    """With --command: how the program gets parameters without a placeholder."""
    score_regex: Annotated[str | None, shown("REGEX", "(default: JSON lines)")] = None
    """With --command: read the score from the program's log, as in 'reward: (\\S+)'."""
    steps_regex: Annotated[str | None, shown("REGEX", "(default: none)")] = None
    """With --score-regex: read the steps from the program's log."""
    score_csv: Annotated[str | None, shown("FILE:COLUMN[,STEPS]", "(default: none)")] = None
    """With --command: read the score from a CSV or JSON Lines file in the trial's folder, as in progress.csv:reward."""
    score_tensorboard: Annotated[str | None, shown("[FOLDER:]TAG", "(default: none)")] = None
    """With --command: read the score from event files of TensorBoard in the trial's folder."""
    score_comma: Annotated[str | None, shown("decimal|thousands", "(default: by all numbers of a log)")] = None
    """With --command: what a comma between the digits of a score is."""
    metric_regex: Annotated[tuple[str, ...], UseAppendAction, shown("NAME=REGEX", "(default: none)")] = ()
    """With --command: also read a metric from the log, as in 'memory_gb=peak (\\S+) GB'. Give it once for each metric.
    What JSON lines, rows of a file and event files hold beside the score is a metric, too."""
    direction: Annotated[str | None, shown("maximize|minimize", "(default: the space file's, or maximize)")] = None
    """With --command: whether a higher or a lower score is better."""
    score_range: Annotated[str | None, shown("LOW,HIGH", "(default: the space file's, or none)")] = None
    """With --command: the lowest and the highest possible score, as in 0,1; predictions stay inside."""
    resume_flag: Annotated[str | None, shown("TEXT", "(default: none)")] = None
    """With --command: words for an interrupted trial that goes on, as in '--resume {checkpoint}'."""
    chdir: Annotated[str | None, shown("DIR", "(default: this folder)")] = None
    """With --command: folder in which the program runs; {directory} is the trial's own."""
    accept_exit_codes: Annotated[str | None, shown("INT[,INT...]", "(default: 0 alone)")] = None
    """With --command: exit codes with which a trial that has a score has ended well, too, as in 1,134."""
    clock_counts: Switch = False
    """With --command: a trial costs at least its wall clock, also where the program reports a lower cost."""
    max_silence: Annotated[str | None, shown("DURATION", "(default: 1h)")] = None
    """With --command: end a trial that writes nothing for so long."""
    accept_changes: Switch = False
    """Go on with a sweep whose command is run or read in another way now. What is searched must be the same."""
    verbose: Switch = False
    """Without a terminal, write all of each trial into its line: intervals, how far off predictions were, why it was
    tried. Else lines are shorter than 120 characters; `protein show` has the rest."""


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataArguments:
    """Make tokens of text, for a language model to learn. ACTION is tokenize or show.

    tokenize reads files of text, and folders of them, and writes a folder for data.path. A file is one document; of a
    .jsonl file each line is one, the "text" of its object. show looks at such a folder, reads all of it and says what
    it holds."""

    action: Positional[Annotated[str | None, shown("ACTION", "(required)")]] = None
    """tokenize or show."""
    paths: Positional[Annotated[tuple[Path, ...], shown("PATH [PATH ...]", "(required)")]] = ()
    """tokenize: files of text, or folders of them. show: one folder of tokens, or python."""
    into: Annotated[Path | None, shown("FOLDER", "(required)")] = None
    """tokenize: the folder to write. There must be none yet."""
    match: Annotated[str | None, shown("PATTERN", "(default: all files)")] = None
    """tokenize: of folders take only files with such names, as in '*.py'. Hidden files are always left out."""
    tokenizer: Annotated[str | None, shown("bytes|bpe|PATH", "(default: bytes)")] = None
    """tokenize: bytes, a byte-pair encoding that is learned from the text, or a folder with the files of one: GPT-2's
    vocab.json and merges.txt, or tokenizer.json."""
    vocabulary: Annotated[int | None, value_spec(int, "--vocabulary"), shown("INT", "(default: 4_096)")] = None
    """tokenize, with bpe: how many tokens it learns."""
    validation: Annotated[float | None, value_spec(float, "--validation"), shown("SHARE", "(default: 0.05)")] = None
    """tokenize: share of the text that training does not see. A document goes to one side by the hash of its text."""
    json: Switch = False
    """Print JSON."""


# Read the result.


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatusArguments(StoreArguments):
    """Show how far sweeps are: all of them, or one with what is best, how sure that is, what matters, what next."""

    sweep: Positional[Annotated[str | None, shown("[SWEEP]", "(default: all)")]] = None
    """Name of a sweep."""
    watch: Switch = False
    """Go on showing it, until Ctrl-C."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParetoArguments(OneSweepArguments):
    """Show a sweep's Pareto fronts: the best score for every cost, as measured and as expected without luck."""

    png: Annotated[Path | None, shown("FILE", "(default: none)")] = None
    """Also draw the front into this PNG file."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestArguments(OneSweepArguments):
    """Show the config with the best expected score, the knee, and the commands that train them."""

    under: Under = None
    """Also show the best among configs that are expected to cost at most this much training time, as in 30s."""
    confirm: Annotated[int | None, optional_count("--confirm"), shown("[INT]", "(default: not)")] = None
    """First run the likeliest contenders again, on fresh seeds, until one is best with 90 %. INT: how many contenders.
    Write the sweep's name before it."""
    max_cost: Annotated[str | None, shown("DURATION", "(default: a tenth of what the search took)")] = None
    """With --confirm: the training time that these runs may take."""
    write: Annotated[Path | None, shown("FILE", "(default: none)")] = None
    """Also write the config as a short TOML file for --config, with comments. With --ladder: FILE_10s, FILE_1m, ..."""
    ladder: Annotated[str | None, shown("DURATION[,DURATION...]", "(default: none)")] = None
    """Write the best config under each of these limits, as in 10s,1m,10m. The files begin with the sweep's name."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LawsArguments(OneSweepArguments):
    """Show how each parameter's best value changes with cost, and the config to try at a larger cost."""

    at: Annotated[str | None, shown("DURATION", "(default: none)")] = None
    """Also show the config to try at this cost, as in 8h. It may be far above that of the largest trial."""
    write: Annotated[Path | None, shown("FILE", "(default: none)")] = None
    """With --at: also write the config as a short TOML file for --config, with comments."""
    png: Annotated[Path | None, shown("FILE", "(default: none)")] = None
    """Also draw the laws into this PNG file."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowArguments(OneSweepArguments):
    """Show a sweep's trials, everything about one of them, or how good the engine's predictions were."""

    trial: Annotated[int | None, value_spec(int, "--trial"), shown("INT", "(default: all)")] = None
    """Number of a trial."""
    calibration: Switch = False
    """Compare predicted with measured scores and costs, and draw a picture into the sweep's folder."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TryArguments(OneSweepArguments):
    """Queue a config of your own in a sweep, as in protein try mine --lr 3e-4 --layers 2, also while it runs.

    It starts at the next free worker, or when the sweep is run again. What is not given is as in the initial config.
    --params.NAME is a parameter that is called like a flag of this command."""

    file: Annotated[Path | None, shown("FILE", "(default: none)")] = None
    """Queue the configs of a file: .json, .jsonl, .csv with a header, or .toml."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoteArguments(OneSweepArguments):
    """Tag a trial, write a note on it, or exclude it, so that the engine ignores it and nothing recommends it."""

    trial: Annotated[str | None, shown("INT[,INT...]", "(required)")] = None
    """Number of the trial, or numbers of several."""
    tag: Annotated[str | None, shown("TEXT[,TEXT...]", "(default: none)")] = None
    """Tags to add."""
    untag: Annotated[str | None, shown("TEXT[,TEXT...]", "(default: none)")] = None
    """Tags to take away."""
    note: Annotated[str | None, shown("TEXT", "(default: as it is)")] = None
    """The note, which replaces the one before; an empty one removes it."""
    exclude: Switch = False
    """From the next suggestion on, the engine learns nothing from the trial. A running sweep follows, too."""
    include: Switch = False
    """Take an exclusion back."""
    json: Switch = False
    """Print JSON."""


# See and compare.


@dataclasses.dataclass(frozen=True, kw_only=True)
class ViewArguments(StoreArguments):
    """Look at sweeps in the browser: a page of this machine, live while they run."""

    of: Positional[Annotated[str | None, shown("[STORE]", "(default: $PROTEIN_STORE, or runs/protein.db)")]] = None
    """The store to show: a path, sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE."""
    port: Annotated[int | None, value_spec(int, "--port"), shown("INT", "(default: 8742, or a free one)")] = None
    """Port to listen on."""
    host: Annotated[str, shown("ADDRESS", "(default: 127.0.0.1)")] = "127.0.0.1"
    """Address to listen on. One that other machines can reach needs --token."""
    token: Switch = False
    """Make a token, without which the server answers nobody. It is printed once, in the address."""
    artifacts: Artifacts = None
    """Where the files of sweeps are, if they were given --artifacts."""
    open: Switch = False
    """Open the page in the browser."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlayArguments(StoreArguments):
    """Play a trained agent's game in the browser, from one file that can be sent; take over with the keys.

    Several names play beside each other, games of the same seeds."""

    names: Positional[Annotated[tuple[str, ...], shown("[NAME ...]", "(default: the only sweep of the store)")]] = ()
    """A sweep, whose recommended trial plays; the folder of a run or of a trial; or a checkpoint file."""
    trial: Annotated[int | None, value_spec(int, "--trial"), shown("INT", "(default: the recommended one)")] = None
    """Number of the sweep's trial."""
    under: Under = None
    """The best among configs that are expected to cost at most this much training time, as in 30s."""
    human: Switch = False
    """You begin. With a game's name, as in protein play pong --human, you need no agent."""
    seed: Annotated[int, value_spec(int, "--seed")] = 0
    """Source of the games' randomness."""
    greedy: Switch = False
    """Take the most probable action instead of sampling, where the run itself did not."""
    learn: Switch = False
    """With a game's name: the page learns the game itself, from the beginning, as the game's config says."""
    output: Annotated[Path | None, shown("FILE", "(default: a temporary file, which is opened)", short="-o")] = None
    """Write the file here, and do not open it."""
    artifacts: Artifacts = None
    """Where the files of sweeps are, if they were given --artifacts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportArguments(StoreArguments):
    """Write one or several sweeps as one HTML file: the pages of protein view, to send or to keep."""

    sweeps: Positional[Annotated[tuple[str, ...], shown("[SWEEP ...]", "(default: the only sweep of the store)")]] = ()
    """Names of sweeps."""
    output: Annotated[Path | None, shown("FILE", "(default: the sweep's name with .html)", short="-o")] = None
    """The file. It needs no server and no network, and holds no path of this machine."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotArguments(StoreArguments):
    """Draw a picture of one or several sweeps.

    KIND is front (score against cost), history (score against trial number), curves (learning curves), parallel (the
    parameters, a line a trial), importance (which parameters matter) or compare (sweeps over each other)."""

    what: Positional[
        Annotated[tuple[str, ...], shown("KIND [SWEEP ...]", "(default: the only sweep of the store)")]
    ] = ()
    """What to plot, and the sweeps."""
    output: Annotated[Path | None, shown("FILE", "(default: KIND.png)", short="-o")] = None
    """The picture. Its ending says which kind of file: .png, .svg or .pdf."""
    x: Annotated[str | None, shown("seconds|steps|fraction", "(default: seconds)")] = None
    """Curves: what they run over."""
    trials: Annotated[str | None, shown("INT[,INT...]", "(default: those of the front)")] = None
    """Curves: the trials to draw in color."""
    by: Annotated[str | None, shown("PARAMETER", "(default: none)")] = None
    """Curves: the parameter whose value gives the color of a curve."""
    log_x: Switch = False
    """Curves: draw them over a logarithmic axis."""
    smooth: Annotated[float | None, value_spec(float, "--smooth"), shown("FLOAT", "(default: 0)")] = None
    """Curves: weight of the past in an exponential mean, from 0 to below 1."""
    mean: Switch = False
    """Curves: draw the mean of each sweep, or of each value of `--by`, with a band of one standard deviation."""
    params: Annotated[str | None, shown("NAME[,NAME...]", "(default: up to 10 in which trials differ)")] = None
    """Parallel: the parameters to draw, in this order."""
    target: Annotated[str | None, shown("score|cost", "(default: score)")] = None
    """Importance: for what the parameters matter."""
    env: Annotated[str | None, shown("NAME[,NAME...]", "(default: all that the sides have in common)")] = None
    """Compare: the environments."""
    reference: Annotated[str | None, shown("SIDE", "(default: the first)")] = None
    """Compare: the side that is drawn first."""
    each: Switch = False
    """Compare: make every sweep a side of its own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareArguments(StoreArguments):
    """Compare two or more sweeps: best score, hypervolume, and how soon it was found, with intervals over seeds.

    Sweeps whose names differ in a seed or an environment only, such as old-pong-1 and old-maze-2, are one side."""

    sweeps: Positional[Annotated[tuple[str, ...], shown("SWEEP SWEEP ...", "(required)")]] = ()
    """Names of sweeps. Where one is a pattern ('old-*') or a list (a,b,c), each argument is a side."""
    env: Annotated[str | None, shown("NAME[,NAME...]", "(default: all that the sides have in common)")] = None
    """Environments to compare in."""
    reference: Annotated[str | None, shown("SIDE", "(default: the first)")] = None
    """The side that the others are compared with."""
    each: Switch = False
    """Make every sweep a side of its own."""
    json: Switch = False
    """Print JSON."""


# Steer a sweep that runs.


@dataclasses.dataclass(frozen=True, kw_only=True)
class PauseArguments(OneSweepArguments):
    """Start no more trials of a sweep until it is resumed. Its process goes on waiting, and running trials go on."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumeArguments(OneSweepArguments):
    """Let a paused sweep start trials again. It does not start the sweep's process; protein sweep does."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StopArguments(OneSweepArguments):
    """End the process that runs a sweep, from any terminal, as its Ctrl-C would. protein sweep resumes it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CancelArguments(OneSweepArguments):
    """End trials that run or wait, from any terminal or machine. They count as interrupted and are not tried again."""

    trial: Annotated[str | None, shown("INT[,INT...]", "(required)")] = None
    """Number of the trial, or numbers of several."""


# Move, keep and clean up.


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportArguments(StoreArguments):
    """Write sweeps into a file with all that the store holds of them. `protein import FILE` reads it."""

    sweeps: Positional[Annotated[tuple[str, ...], shown("[SWEEP ...]", "(default: the only sweep of the store)")]] = ()
    """Names of sweeps."""
    all: Switch = False
    """Every sweep of the store."""
    output: Annotated[Path | None, shown("FILE", "(default: the sweep's name with .jsonl)", short="-o")] = None
    """The file: .jsonl (JSON lines), or .parquet, which needs pyarrow. One that is there is replaced."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImportArguments(StoreArguments):
    """Store the sweeps of a file that protein export has written. Or take over the runs of another tool as a sweep.

    Runs of another tool can be looked at, and sweeps can start warm from them. The same command again adds new ones."""

    tool: Positional[Annotated[str | None, shown("[PATH|TOOL]", "(required)")]] = None
    """A .jsonl or .parquet file of protein export. Or the files of another tool. Or that tool and its SOURCE: optuna,
    wandb, mlflow, pufferlib, trackio, ray, syne-tune, smac, neps or carbs."""
    source: Positional[Annotated[str | None, shown("[SOURCE]", "(required)")]] = None
    """URL or file of a study's storage or of MLflow; a CSV file (wandb); a folder of logs or results (the others)."""
    name: Annotated[str | None, shown("TEXT", "(default: like the experiment's)")] = None
    """Name of the sweep."""
    experiment: Annotated[str | None, shown("TEXT", "(default: the only one)")] = None
    """The study or the experiment, where the source holds several."""
    score: Annotated[str | None, shown("METRIC", "(default: what the tool names)")] = None
    """The metric that counts."""
    direction: Annotated[str | None, shown("maximize|minimize", "(default: what the tool names)")] = None
    """Whether a higher score is better."""
    cost: Annotated[str | None, shown("METRIC", "(default: the run's duration)")] = None
    """What a run cost in seconds; the word equal stands for one second each."""
    params: Annotated[str | None, shown("COLUMN[,COLUMN...]", "(default: all that may be)")] = None
    """wandb: the columns that are parameters. Its file does not tell them from metrics."""
    rename: Annotated[tuple[str, ...], UseAppendAction, shown("OLD=NEW", "(default: none)")] = ()
    """Another name for a parameter, as in lr=train.learning_rate. Give it several times for several."""
    space: Annotated[str | None, shown("FILE", "(default: what the runs show)")] = None
    """Ranges in any form that a sweep takes."""
    cost_parameter: Annotated[str | None, shown("NAME", "(default: what the tool names)")] = None
    """The parameter that makes a run expensive, as train.total_timesteps does."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyncArguments(OneSweepArguments):
    """Write a sweep's trials to a tracker: all that it does not have yet."""

    tracker: Trackers = ()
    """mlflow, neptune, wandb, tensorboard or trackio. Give it several times for several."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreCommandArguments:
    """Look after a store. ACTION is check, upgrade, backup or move.

    check looks at every value and prints what is damaged. upgrade brings an older store to this version, with a backup
    first. backup copies a store while it is used. move copies all sweeps into another store."""

    action: Positional[Annotated[str | None, shown("ACTION", "(required)")]] = None
    """check, upgrade, backup or move."""
    url: Positional[Annotated[str | None, shown("[STORE]", "(default: $PROTEIN_STORE, or runs/protein.db)")]] = None
    """The store: a path, sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE."""
    output: Annotated[Path | None, shown("FILE", "(default: beside the store)", short="-o")] = None
    """backup, upgrade: the file of the copy. Of a PostgreSQL store it is an export of all sweeps, such as all.jsonl."""
    to: Annotated[str | None, shown("STORE", "(default: none)")] = None
    """move: the store that the sweeps are copied to."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CleanArguments(OneSweepArguments):
    """Delete checkpoints that nothing needs any more, and say how much space that frees.

    Kept are those of the front, of the recommended config, and of trials that can go on. Logs and configs stay, too."""

    all: Switch = False
    """Every sweep of the store."""
    dry_run: Switch = False
    """Only say what would be deleted."""
    finished: Switch = False
    """The sweep gets no more budget: delete also what finished trials could go on from to more steps."""
    artifacts: Artifacts = None
    """Where its files are, if the sweep was given --artifacts."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RenameArguments(StoreArguments):
    """Rename a sweep and its folder."""

    old: Positional[Annotated[str | None, shown("OLD", "(required)")]] = None
    """Name of the sweep."""
    new: Positional[Annotated[str | None, shown("NEW", "(required)")]] = None
    """Its new name."""
    artifacts: Artifacts = None
    """Where its files are, if the sweep was given --artifacts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoveArguments(StoreArguments):
    """Delete a sweep with all of its trials and files."""

    sweep: Positional[Annotated[str | None, shown("SWEEP", "(required)")]] = None
    """Name of the sweep."""
    yes: Switch = False
    """Delete it without asking."""
    keep_files: Switch = False
    """Leave the sweep's folder as it is."""
    artifacts: Artifacts = None
    """Where its files are, if the sweep was given --artifacts."""


# This machine.


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerArguments:
    """Run trials of the sweeps in a folder on this machine, until Ctrl-C. Workers join and leave while a sweep runs.

    A sweep that is started by protein sweep --backend folder:DIR takes any number of them. A worker that leaves gives
    its trials back, and they go on elsewhere. A machine that does not see the folder joins by the URL of a
    protein serve DIR."""

    place: Positional[Annotated[str | None, shown("FOLDER|URL", "(required)")]] = None
    """The folder of the sweeps, as this machine sees it, or the URL of their protein serve."""
    token_file: Annotated[Path | None, shown("FILE", "(default: $PROTEIN_TOKEN)")] = None
    """With a URL: a file with the token that protein serve has made."""
    slots: Annotated[int | None, value_spec(int, "--slots"), shown("INT", "(default: one a GPU of --gpus, or 1)")] = (
        None
    )
    """Trials that run here at the same time."""
    gpus: Annotated[str | None, shown("ID[,ID...]|all", "(default: the trials' choice)")] = None
    """GPUs that trials may use, as nvidia-smi counts them, or MIG ids."""
    until: Annotated[str | None, shown("DURATION|TIME", "(default: no end)")] = None
    """Leave then, as in 2h, 08:00 or 2026-11-23T08:00."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeArguments:
    """Let workers on machines that do not see the folder of the sweeps join them by a URL, until Ctrl-C.

    Start the sweep by protein sweep --backend folder:DIR, then this, and protein worker URL on the other machines.
    TLS is the work of a proxy before it."""

    place: Positional[Annotated[str | None, shown("FOLDER", "(required)")]] = None
    """The folder of the sweeps."""
    port: Annotated[int | None, value_spec(int, "--port"), shown("INT", "(default: 8743, or a free one)")] = None
    """Port to listen on."""
    host: Annotated[str, shown("ADDRESS", "(default: 127.0.0.1)")] = "127.0.0.1"
    """Address to listen on."""
    token_file: Annotated[Path | None, shown("FILE", "(default: FOLDER/.token)")] = None
    """The file with the token that workers need. It is made where there is none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvsArguments:
    """List the environments."""

    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DoctorArguments(StoreArguments):
    """Check that this machine has what is needed, and whether something slows it down."""

    calibrate: Switch = False
    """Measure how fast this machine trains, in about ten seconds, and keep the result in the store."""
    workers: Annotated[int, value_spec(int, "--workers"), shown("INT", "(default: 1)")] = 1
    """Trials that will run here at the same time: the calibration uses the cores that each of them gets."""
    device: Annotated[str, shown("DEVICE", "(default: auto)")] = "auto"
    """Device of the trials, as in train.device."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class McpArguments(StoreArguments):
    """Serve sweeps to coding agents: a server of the Model Context Protocol on standard input and output.

    Agents read the store. They start and steer sweeps only with --allow-start and --max-cost, and nothing that they
    call goes beyond these: docs/agents.md."""

    folder: Annotated[Path, shown("DIR", "(default: this folder)")] = Path()
    """Where agents work: programs run in it, and configs, spaces and the store lie in it."""
    allow_start: Annotated[tuple[str, ...], UseAppendAction, shown("WHAT", "(default: agents only read)")] = ()
    """What agents may sweep: an environment, a config file, or the beginning of a command line, as in
    'python train.py', with any arguments behind it. Give it several times for several."""
    max_cost: Annotated[str | None, shown("DURATION", "(required with --allow-start)")] = None
    """Budget of all sweeps that agents start in this store, also by earlier servers, as in 2h."""
    max_trials: Annotated[int | None, value_spec(int, "--max-trials"), shown("INT", "(default: no limit)")] = None
    """Trials of all these sweeps together."""
    workers: Annotated[int, value_spec(int, "--workers"), shown("INT", "(default: 1)")] = 1
    """Trials of theirs that run at the same time."""
