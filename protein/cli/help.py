"""What `protein --help` prints, and the groups in which `protein sweep --help` lists its flags."""

import dataclasses
import io
import re
import shutil
import sys
import textwrap
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import tyro

from protein.cli.values import field_texts, with_none, with_old_unions

DESCRIPTION = """Protein: cost-aware hyperparameter sweeps.

  protein sweep --env pong --max-cost 10m    search; run it again to resume
  protein pareto pong                        score against cost
  protein train --env pong --from pong       train the recommended config
  protein sweep --env text/python            the same with a language model
  protein --version                          print the version"""

# title -> its commands. Every command is in one group.
GROUPS: Mapping[str, Sequence[str]] = {
    "Search and train": ("sweep", "train", "eval", "data"),
    "Read the result": ("status", "pareto", "best", "laws", "show", "note"),
    "See and compare": ("view", "play", "report", "plot", "compare"),
    "Steer a sweep that runs": ("try", "pause", "resume", "stop", "cancel"),
    "Move, keep and clean up": ("export", "import", "sync", "store", "clean", "rename", "rm"),
    "This machine": ("worker", "serve", "envs", "doctor", "mcp"),
}
# The flags of `protein sweep` that are listed in a group of their own: title -> fields of `SweepArguments`.
SWEEP_GROUPS: Mapping[str, Sequence[str]] = {
    "budget": (
        "max_cost",
        "max_trial_cost",
        "max_trials",
        "max_trial_memory",
        "min_free_disk",
        "require",
        "stop_when",
        "confirm_share",
    ),
    "worker": ("workers", "pin_cores", "gpus", "gpus_per_trial", "trials_per_gpu", "max_trial_gpu_memory"),
    "overnight": ("until", "on_trial", "on_finish", "on_trouble"),
    "any-program": (
        "command",
        "space",
        "params",
        "score_regex",
        "steps_regex",
        "score_csv",
        "score_tensorboard",
        "score_comma",
        "metric_regex",
        "direction",
        "score_range",
        "resume_flag",
        "chdir",
        "accept_exit_codes",
        "clock_counts",
        "max_silence",
        "accept_changes",
    ),
    "many-machines": ("backend", "artifacts", "trial_cores", "resources", "slurm_options", "calibrate"),
}
_WIDEST = 100
_NARROWEST = 40
# Where the list of flags begins: its box, or its title over a line of dashes.
_BOX = re.compile(r"^(╭| .*\n -{8})", re.MULTILINE)


def overview(commands: Mapping[str, type]) -> str:
    """Returns the text of `protein --help`: every command with the first sentence of its own help."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    lines = ["usage: protein COMMAND [OPTIONS]", "", DESCRIPTION]
    for title, names in GROUPS.items():
        lines += ["", f"{title}:"]
        for name in names:
            text = " ".join((commands[name].__doc__ or "").split()).partition(". ")[0].removesuffix(".")
            lines += textwrap.wrap(
                text, max(width, _NARROWEST), initial_indent=f"  {name:<8} ", subsequent_indent=" " * 11
            )
    lines += ["", "protein COMMAND --help explains a command and its flags."]
    return "\n".join(lines)


class Captured(io.StringIO):
    """Takes what tyro prints, in the form that it would have on the standard output."""

    def __init__(self) -> None:
        super().__init__()
        self._output = sys.stdout

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._output.encoding

    def isatty(self) -> bool:
        return self._output.isatty()


def wrapped(text: str) -> str:
    """Returns a command's help with the texts above its flags wrapped: tyro wraps only what is in boxes."""
    width = max(shutil.get_terminal_size().columns, _NARROWEST)
    box = _BOX.search(text)
    start = len(text) if box is None else box.start()
    paragraphs = re.split(r"\n\n+", text[:start].rstrip("\n"))
    filled = (textwrap.fill(one, width, break_on_hyphens=False, break_long_words=False) for one in paragraphs)
    return "\n\n".join(filled) + "\n\n" + text[start:]


def grouped(kind: type, groups: Mapping[str, Sequence[str]]) -> type:
    """Returns a dataclass whose help lists some of its flags in groups of their own. It is for the help alone."""
    hints = typing.get_type_hints(kind, include_extras=True)
    texts = field_texts(kind)
    moved = {name: title for title, names in groups.items() for name in names}
    members: dict[str, list[tuple[str, Any, Any]]] = {}
    kept: list[tuple[str, Any, Any]] = []
    for field in dataclasses.fields(kind):
        default: Any = dataclasses.field(default=field.default)
        if field.default is dataclasses.MISSING:
            default = dataclasses.field(default_factory=field.default_factory)
        text = tyro.conf.arg(help=texts.get(field.name), prefix_name=False if field.name in moved else None)
        hint = with_old_unions(hints[field.name])
        if field.default == ():  # only shown, never read: nothing has to tell whether () is a tuple of texts
            hint, default = with_none(hint), dataclasses.field(default=None)
        entry = (field.name, Annotated[hint, text], default)
        members.setdefault(moved[field.name], []).append(entry) if field.name in moved else kept.append(entry)
    nested = []
    for title in groups:
        group = dataclasses.make_dataclass(title, members[title], frozen=True, kw_only=True)
        hint = Annotated[group, tyro.conf.arg(help="")]  # no text: tyro would look for one in the sources
        nested.append((title.replace("-", "_"), hint, dataclasses.field(default_factory=group)))
    made = dataclasses.make_dataclass(kind.__name__, [*kept, *nested], frozen=True, kw_only=True)
    made.__doc__ = kind.__doc__
    return made
