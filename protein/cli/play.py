"""`protein play`: a trained agent's game in the browser, from one file that can be sent."""

import contextlib
import dataclasses
import os
import tempfile
import webbrowser
from pathlib import Path

from protein import files
from protein.api import stores
from protein.api.answers import Answers
from protein.cli.arguments import PlayArguments
from protein.cli.output import require_file, working, writing
from protein.cli.parse import Command
from protein.config.resolve import file_name, load
from protein.direction import shown_trial
from protein.envs_c import worlds
from protein.errors import ProteinError, UsageError
from protein.ports import Store
from protein.sweep.resuming import TRAINERS_FILE, checkpoint_header
from protein.trainer.config import RunConfig
from protein.trainer.export import export_policy
from protein.types import SweepRecord, TrialRecord, runs_trainer
from protein.view import text
from protein.web import artifacts, play

SEED_MAX = 2**53 - 1  # of what a page can hold


def run(command: Command) -> int:
    arguments: PlayArguments = command.arguments
    if not 0 <= arguments.seed <= SEED_MAX:
        raise UsageError(f"--seed {arguments.seed} must be from 0 to {SEED_MAX}")
    if arguments.trial is not None and arguments.under is not None:
        raise UsageError(f"--trial {arguments.trial} and --under {arguments.under} both choose a trial; drop one")
    config = _lesson(arguments) if arguments.learn else None
    if arguments.output is not None:
        require_file("--output", arguments.output)
    with working("looking for the agent"):
        found = (
            [_found(name, arguments) for name in arguments.names or (None,)] if config is None else [_nobody(config)]
        )
    document, halved = _document(found, arguments, config)
    if arguments.output is None:
        descriptor, name = tempfile.mkstemp(prefix=f"{file_name(found[0][0].env)}-", suffix=".html")
        os.close(descriptor)
        path = Path(name)
    else:
        path = arguments.output
    with writing(path):
        files.replace_file(path, document)
    print(f"game: {path} ({len(document) / 1e6:.2f} MB); open it in a browser")
    if halved:
        print(f"its weights have 16 bits, so that it is below {play.MAX_BYTES / 1e6:.0f} MB")
    if arguments.output is None:
        webbrowser.open(path.absolute().as_uri())
    return 0


Found = tuple[play.Player, Path | None]  # with its checkpoint


def _document(found: list[Found], arguments: PlayArguments, config: RunConfig | None) -> tuple[bytes, bool]:
    """Returns the file, and whether its weights have 16 bits, which they have where it would be large without."""
    title = ", ".join(dict.fromkeys(player.env for player, _ in found))

    def made(players: list[play.Player]) -> bytes:
        return play.document(
            players,
            title=title,
            seed=arguments.seed,
            human=arguments.human,
            greedy=arguments.greedy,
            config=config,
        ).encode()

    document = made([player for player, _ in found])
    if len(document) <= play.MAX_BYTES or all(path is None for _, path in found):
        return document, False
    return made(
        [_player(path, player.title, player.note, half=True) if path else player for player, path in found]
    ), True


def _lesson(arguments: PlayArguments) -> RunConfig:
    """Returns the config of the one game that the page is to learn. Raises `UsageError` where there is none."""
    if len(arguments.names) != 1 or arguments.names[0] not in worlds.names():
        raise UsageError(f"--learn takes one game; name one of {', '.join(worlds.names())}")
    given = {"--trial": arguments.trial, "--under": arguments.under, "--human": arguments.human or None}
    elsewhere = {"--store": arguments.store, "--artifacts": arguments.artifacts}
    for name, value in {**given, "--greedy": arguments.greedy or None, **elsewhere}.items():
        if value is not None:
            raise UsageError(
                f"{name} is for an agent that has learnt, and --learn begins with none; drop one of the two"
            )
    config = load(arguments.names[0]).run_config()
    assert isinstance(config, RunConfig)
    return config


def _nobody(config: RunConfig) -> Found:
    return play.Player(env=config.env.name, title="learning", note="", policy=None), None


def _player(path: Path, title: str, note: str, *, half: bool = False) -> play.Player:
    policy = export_policy(path, half=half)
    run = checkpoint_header(path) or {}
    return play.Player(env=run["config"]["env"]["name"], title=title, note=note, policy=policy)


def _found(name: str | None, arguments: PlayArguments) -> Found:
    """Returns who plays: the agent of a checkpoint, of a run's folder or of a sweep; or, of a game's name, nobody.

    Raises:
        UsageError: there is nothing of that name, or it has left no agent.
    """
    chooses = arguments.trial is not None or arguments.under is not None
    if name and (path := _checkpoint(Path(name))) is not None:
        if chooses:
            raise UsageError(f"--trial and --under choose among a sweep's trials, and {name} is a checkpoint")
        title = path.parent.name if path.name == TRAINERS_FILE else path.stem
        player = _player(path, title, "")  # which finds what is wrong with the file
        run = checkpoint_header(path) or {}
        note = f"{run['steps']:,} steps in {text.seconds(run['elapsed_seconds'])} of training"
        if run["score"] is not None:
            note = f"score {text.score(run['score'])} in training, {note}"
        return dataclasses.replace(player, note=note), path
    with contextlib.ExitStack() as stack:
        try:
            store = stack.enter_context(stores.opened(arguments.store))
            sweep = stores.find(store, name)
        except ProteinError as error:
            if arguments.human and not chooses and name in worlds.names():
                return play.Player(env=name, title=name, note="played by you", policy=None), None
            raise _unknown(name, error) from error
        trial, path = _trial(store, sweep, arguments)
    cost = f"{text.seconds(trial.run_seconds)} of training"
    note = cost if trial.score is None else f"score {text.score(trial.score)} in {cost}"
    return _player(path, f"trial {trial.number} of {sweep.spec.name}", note), path


def _checkpoint(path: Path) -> Path | None:
    """Returns the checkpoint that a path names, by itself or by its run's folder; None: it names none."""
    if path.is_dir():
        path = path / TRAINERS_FILE
    return path if path.is_file() else None


def _unknown(name: str | None, error: ProteinError) -> ProteinError:
    """Returns the error for a name that is neither a checkpoint nor a sweep."""
    if not name:
        return error
    if Path(name).is_dir():
        return UsageError(f"{name} is a folder without {TRAINERS_FILE}, which a run writes, and no sweep of the store")
    if Path(name).suffix or len(Path(name).parts) > 1:
        return UsageError(f"there is no checkpoint {name}; protein train prints its path at its end")
    if name in worlds.names():
        return UsageError(f"{error}; to play {name} yourself, add --human")
    return error


def _trial(store: Store, sweep: SweepRecord, arguments: PlayArguments) -> tuple[TrialRecord, Path]:
    """Returns the trial that was asked for, or the recommended one, in the user's direction, and its checkpoint.

    A recommended config may have been run several times; the first run that has left its agent is taken.
    """
    name = sweep.spec.name
    if not runs_trainer(sweep.spec.config):
        raise UsageError(f"sweep '{name}' runs no trainer of ours, so it has no agent that can play")
    if arguments.trial is None:
        trials = Answers(store, sweep).recommendation(arguments.under).chosen.trials
    else:
        trials = (shown_trial(stores.find_trial(store, sweep, arguments.trial), sweep.spec.direction),)
    folder = stores.artifact_directory(stores.url(arguments.store), name, stores.given_artifacts(arguments.artifacts))
    problem = ""
    for trial in trials:
        path, problem = artifacts.checkpoint(folder, trial)
        if path is not None:
            return trial, path
    which = (
        f"trial {trials[-1].number} of sweep '{name}'{'' if arguments.trial is not None else ', which is recommended,'}"
    )
    raise UsageError(f"{which} cannot play: {problem}; name another one with --trial")
