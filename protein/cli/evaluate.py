"""`protein eval`: plays episodes with a checkpoint; with `--render` or `--gif` in one environment, to watch it.

A language model's checkpoint, or a folder of GPT-2's weights, is measured: its loss on validation text. With `--prompt`
it writes.
"""

import contextlib
import dataclasses
import math
import shlex
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.live import Live

from protein import files
from protein.cli import INTERRUPTED_CODE
from protein.cli.arguments import EvalArguments
from protein.cli.output import Progress, answer, print_json, require_file, writing
from protein.cli.parse import Command
from protein.cli.signals import caught
from protein.config.resolve import file_name
from protein.errors import UsageError
from protein.spelling import counted
from protein.sweep.resuming import TRAINERS_FILE, checkpoint_header
from protein.trainer.errors import TrainerError
from protein.trainer.kinds import read
from protein.trainer.language.config import LanguageConfig, subject_of_path
from protein.trainer.language.released import SETTINGS_FILE, WEIGHTS_FILE, is_released
from protein.view import tables, text
from protein.view.text import cleaned

if TYPE_CHECKING:
    from protein.trainer.machine.checkpoint import Checkpoint
    from protein.trainer.watch import Player

EPISODES = 256
WRITTEN_TOKENS = 256  # of a language model
SEED_MAX = 2**64 - 1  # of torch's generators
_MOST_ENVS = {"gym": 32, "gym-async": 32, "pettingzoo": 32}  # by kind: Python objects are expensive


def run(command: Command) -> int:
    arguments: EvalArguments = command.arguments
    watched = arguments.render or arguments.gif is not None
    episodes = arguments.episodes if arguments.episodes is not None else 1 if watched else EPISODES
    if arguments.checkpoint is None:
        raise UsageError(
            "eval needs a checkpoint; give --checkpoint RUN, the folder of a run or the file that protein train prints"
        )
    if episodes < 1:
        raise UsageError(f"--episodes {episodes} is below the limit of 1; play at least one")
    if arguments.seed < 0:
        raise UsageError(f"--seed {arguments.seed} is below the limit of 0; use 0 or more")
    if arguments.seed > SEED_MAX:
        raise UsageError(f"--seed {arguments.seed} is above the limit of {SEED_MAX}; use a smaller one")
    if arguments.render and (arguments.json or not sys.stdout.isatty()):
        raise UsageError("--render draws in a terminal, and stdout is none; give --gif FILE instead")
    checkpoint = _file(arguments.checkpoint)
    if checkpoint is None:
        return evaluate_language(arguments, arguments.checkpoint, None)
    model = _language_model(checkpoint)
    if model is not None:
        return evaluate_language(arguments, checkpoint, model)
    for name, given in (
        ("--prompt", arguments.prompt),
        ("--data", arguments.data),
        ("--tokens", arguments.tokens),
        ("--temperature", arguments.temperature),
        ("--hellaswag", arguments.hellaswag),
    ):
        if given is not None:
            raise UsageError(f"{name} is for language models, and {checkpoint} is none; drop {name}")
    from protein.trainer.machine import (
        checkpoint as checkpoints,  # torch takes seconds to import: mistakes are reported before
    )

    env = arguments.environment
    if env is None:
        saved = checkpoints.read(checkpoint, prefix="none")
        _require_no_code(checkpoint, saved)
        env = saved.subject
    if watched:
        return _watch(arguments, checkpoint, env, episodes)
    from protein.trainer.evaluate import evaluate

    progress = Progress("episodes played")
    with _json_alone(arguments):
        result = evaluate(
            checkpoint,
            env=env,
            episodes=episodes,
            num_envs=_num_envs(episodes, env),
            seed=arguments.seed,
            greedy=arguments.greedy or None,
            progress=lambda done, of: progress(env, done, of),
        )
    known = math.isfinite(result.score_error)
    if arguments.json:
        found = {"env": env, "checkpoint": str(checkpoint), **dataclasses.asdict(result)}
        print_json(found if known else {**found, "score_error": None})
        return 0
    error = f"+- {text.score(result.score_error)}" if known else "+- ?, from one game"
    tables.make_console().print(
        f"score {text.score(result.score)} {error} (mean of {_episodes(result.episodes)} of {env},"
        f" standard deviation {text.score(result.score_std)}) in {text.seconds(result.seconds)}",
        soft_wrap=True,
    )
    return 0


def _file(given: Path) -> Path | None:
    """Returns the checkpoint that `--checkpoint` names, by itself or by its folder; None: it is GPT-2's weights.

    Raises:
        UsageError: there is none.
    """
    if not given.exists():
        raise UsageError(f"there is no checkpoint {given}; protein train prints its path at its end")
    if not given.is_dir():
        if given.name == WEIGHTS_FILE and is_released(given.parent):
            raise UsageError(
                f"--checkpoint {given} has no sizes, which are in {SETTINGS_FILE} beside it; give the folder,"
                f" {given.parent}"
            )
        return given
    if (given / TRAINERS_FILE).is_file():
        return given / TRAINERS_FILE
    if is_released(given):
        return None
    raise UsageError(
        f"--checkpoint {given} is a folder without {TRAINERS_FILE}, which a run writes, and without GPT-2's weights,"
        f" {SETTINGS_FILE} and {WEIGHTS_FILE}; give a run's folder, its checkpoint, or a folder of such weights"
    )


def _language_model(checkpoint: Path) -> LanguageConfig | None:
    """Returns the config of a language model's checkpoint; None: it is an agent's, or cannot be read."""
    run = checkpoint_header(checkpoint) or {}
    try:
        config = read(run["config"])
    except (KeyError, TypeError, AttributeError, TrainerError):
        return None  # reading the file as an agent's says what is wrong with it
    return config if isinstance(config, LanguageConfig) else None


def _require_no_code(checkpoint: Path, saved: "Checkpoint") -> None:
    """Raises `UsageError` where to play would run code in Python that the checkpoint has chosen, and not the user."""
    from protein.trainer.model.saved import named_code

    if found := named_code(saved):
        raise UsageError(
            f"{checkpoint} names code in Python, which eval would run: {'; '.join(found)}; if you trust the checkpoint,"
            f" add --env {shlex.quote(saved.subject)}"
        )


def _json_alone(arguments: EvalArguments) -> contextlib.AbstractContextManager[object]:
    """Returns the context in which an environment plays: with --json, what it prints goes to stderr."""
    return contextlib.redirect_stdout(sys.stderr) if arguments.json else contextlib.nullcontext()


def _watch(arguments: EvalArguments, checkpoint: Path, env: str, episodes: int) -> int:
    """Plays in one environment, draws it, and writes the GIF; after Ctrl-C, the GIF has what was played until then."""
    with _json_alone(arguments):
        player, gif_path, complete, stopped = _shown(arguments, checkpoint, env, episodes)
    _conclude(arguments, checkpoint, env, player, gif_path, complete=complete)
    return INTERRUPTED_CODE if stopped else 0


def _shown(
    arguments: EvalArguments, checkpoint: Path, env: str, episodes: int
) -> tuple["Player", Path | None, bool, bool]:
    """Returns who played, the GIF, whether all is in it, and whether it was interrupted."""
    from protein.trainer.watch import Player
    from protein.view import playback

    gif_path = arguments.gif or checkpoint.parent / f"{file_name(env)}.gif"
    require_file("--gif", gif_path)  # checked now, not at the end
    target = gif_path.absolute()  # also if the environment goes to another folder
    player = Player(checkpoint, env=env, episodes=episodes, seed=arguments.seed, greedy=arguments.greedy or None)
    stride, seconds = playback.pictures_of(player.decisions_per_second)
    console = tables.make_console()
    gif = playback.Gif()
    stop = threading.Event()
    live = Live(console=console, auto_refresh=False) if arguments.render else None
    shown_at = time.monotonic()
    progress = Progress("episodes played")
    with caught(stop), live or threading.Lock():
        progress(env, 0, episodes)
        decisions = 0
        lengths: list[int] = []  # of the episodes that have ended, in decisions
        for scene in player.scenes():
            if stop.is_set():
                break
            if scene.last:
                lengths.append(scene.step)
            if live is None:
                # Of an episode without a limit, those before tell how long it will be.
                longest = player.max_decisions or (statistics.fmean(lengths) if lengths else math.inf)
                progress(env, len(player.scores), episodes, part=min(scene.step / longest, 0.99) * (not scene.last))
            pictured = not scene.last and decisions % stride == 0
            decisions += not scene.last
            if pictured:
                gif.add(scene.pixels)
            if live is None or not (pictured or scene.last):
                continue
            live.update(
                playback.playback_view(
                    scene.pixels,
                    console.width,
                    console.height - 1,
                    title=env,
                    episode=scene.episode,
                    episodes=episodes,
                    step=scene.step,
                    return_so_far=scene.return_so_far,
                ),
                refresh=True,
            )
            shown_at = max(shown_at + seconds, time.monotonic())
            time.sleep(max(shown_at - time.monotonic(), 0.0))  # not `stop.wait`: see `caught`
    if len(gif):
        with writing(gif_path):
            files.replace_file(target, gif.content(seconds))
    return player, gif_path if len(gif) else None, gif.complete, stop.is_set()


def _conclude(
    arguments: EvalArguments, checkpoint: Path, env: str, player: "Player", gif_path: Path | None, *, complete: bool
) -> None:
    scores = player.scores
    score = statistics.fmean(scores) if scores else None
    if arguments.json:
        found: dict[str, Any] = {"score": score, "episodes": len(scores), "scores": scores}
        found |= {"against_itself": True} if player.against_itself else {}
        print_json({"env": env, "checkpoint": str(checkpoint), **found, "gif": gif_path and str(gif_path)})
        return
    console = tables.make_console()
    if scores:
        itself = " against itself, which is no rating: eval without --gif rates it" if player.against_itself else ""
        console.print(f"score {text.score(score)} (mean of {_episodes(len(scores))} of {env}){itself}", soft_wrap=True)
    else:
        console.print("stopped before the first episode had ended")
    if gif_path is not None:
        from protein.view.playback import GIF_FRAMES_MAX

        part = "" if complete else f" (its first {GIF_FRAMES_MAX:,} pictures)"
        console.print(f"GIF: {gif_path}{part}", soft_wrap=True)


def _episodes(number: int) -> str:
    return counted(number, "episode")


def _num_envs(episodes: int, env: str) -> int:
    """Returns the largest number of environments, within the limit of its kind, that share the episodes evenly."""
    most = _MOST_ENVS.get(env.partition(":")[0], 256)
    return next(count for count in range(min(most, episodes), 0, -1) if episodes % count == 0)


def evaluate_language(arguments: EvalArguments, checkpoint: Path, config: LanguageConfig | None) -> int:
    """Carries it out.

    Args:
        arguments: of the command, checked as far as they mean the same for an agent.
        checkpoint: of a language model.
        config: of its run; None: it is a folder of released weights.
    """
    _check_language(arguments, config)
    if arguments.prompt is not None:
        return _write(arguments, checkpoint, arguments.prompt, config)
    if config is None and arguments.data is None:
        return _ask(arguments, checkpoint)
    return _measure(arguments, checkpoint, config)


def _write(arguments: EvalArguments, checkpoint: Path, prompt: str, config: LanguageConfig | None) -> int:
    from protein.trainer.language.sample import sample

    temperature = 0.0 if arguments.greedy else arguments.temperature
    given: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
    tokens = arguments.tokens or WRITTEN_TOKENS
    written = sample(
        checkpoint, prompt, data=arguments.data or "", tokens=tokens, seed=arguments.seed, progress=Progress(), **given
    )
    said = {"env": _subject(arguments, config), "checkpoint": str(checkpoint), "prompt": prompt, "text": written}
    return answer(arguments.json, said, [cleaned(written)])


def _subject(arguments: EvalArguments, config: LanguageConfig | None) -> str | None:
    """Returns the name of the text; None: there is none."""
    if arguments.data is not None:
        return subject_of_path(arguments.data)
    return None if config is None else config.subject


def _ask(arguments: EvalArguments, checkpoint: Path) -> int:
    """Asks HellaSwag's questions of released weights, for which no text is named."""
    if arguments.hellaswag is None or arguments.tokens is not None:
        raise UsageError(
            f"{checkpoint} holds weights and no text to measure them on; give --data FOLDER, tokens that protein data"
            f" tokenize FILES --tokenizer {checkpoint} --into FOLDER has made"
            + ("" if arguments.tokens is not None else ", or --prompt TEXT")
        )
    from protein.trainer.language import evaluate as measuring

    share = measuring.ask(checkpoint, arguments.hellaswag, progress=Progress())
    said = {"env": None, "checkpoint": str(checkpoint), "hellaswag": share}
    return answer(arguments.json, said, [text.hellaswag(share)])


def _check_language(arguments: EvalArguments, config: LanguageConfig | None) -> None:
    """Raises `UsageError` for a flag that means nothing for a language model, or for a value out of range."""
    for name, given in (
        ("--episodes", arguments.episodes is not None),
        ("--render", arguments.render),
        ("--gif", arguments.gif is not None),
    ):
        if given:
            raise UsageError(
                f"{name} is for agents, and {arguments.checkpoint} is a language model's; use --prompt TEXT"
            )
    if config is None and arguments.environment is not None:
        raise UsageError(f"{arguments.checkpoint} holds weights alone; drop --env, and give --data FOLDER")
    if config is not None and arguments.environment not in (None, config.subject):
        raise UsageError(
            f"--env {arguments.environment} contradicts {arguments.checkpoint}, which was trained on"
            f" '{config.subject}'; drop --env"
        )
    if arguments.tokens is not None and arguments.tokens < 1:
        raise UsageError(f"--tokens {arguments.tokens} is below the limit of 1; use 1 or more")
    if arguments.temperature is not None and arguments.temperature < 0:
        raise UsageError(f"--temperature {arguments.temperature:g} is below the limit of 0; use 0 or more")
    if arguments.prompt is None and (arguments.greedy or arguments.temperature is not None):
        name = "--greedy" if arguments.greedy else "--temperature"
        raise UsageError(f"{name} says how to write; give --prompt TEXT, too")
    if arguments.prompt is not None and arguments.hellaswag is not None:
        raise UsageError(f"--hellaswag {arguments.hellaswag} measures, and --prompt writes; give one of the two")


def _measure(arguments: EvalArguments, checkpoint: Path, config: LanguageConfig | None) -> int:
    from protein.trainer.language import evaluate as measuring

    found = measuring.evaluate(
        checkpoint,
        data=arguments.data or "",
        tokens=arguments.tokens or 0,
        questions=arguments.hellaswag,
        progress=Progress(),
    )
    subject = _subject(arguments, config)
    metrics = {"bits_per_byte": found.bits_per_byte, "loss": found.nats_per_token}
    lines = [
        f"score {text.score(found.score)}: {text.loss(metrics)}, over {found.tokens:,} tokens of {subject} in"
        f" {text.seconds(found.seconds)}"
    ]
    if found.hellaswag is not None:
        lines.append(text.hellaswag(found.hellaswag))
    said = {"env": subject, "checkpoint": str(checkpoint), "score": found.score, **dataclasses.asdict(found)}
    return answer(arguments.json, said, lines)
