"""What several commands take, and how a flag is shown in the help."""

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg


def shown(metavar: str, default: str = "", name: str | None = None, short: str | None = None) -> object:
    """Returns how the help shows a flag: its value, what holds without it, another name, a short name."""
    return arg(name=name, metavar=metavar, help_behavior_hint=default, aliases=None if short is None else [short])


OF_CONFIG = "(default: the config's)"
Switch = Annotated[bool, arg(help_behavior_hint="")]  # given or not: it takes no value
SweepName = Positional[Annotated[str | None, shown("[SWEEP]", "(default: the only sweep of the store)")]]
Config = Annotated[Path | None, shown("FILE", "(default: none)")]
Artifacts = Annotated[Path | None, shown("DIR", "(default: beside the store)")]
Trackers = Annotated[tuple[str, ...], UseAppendAction, shown("NAME", "(default: none)")]
Under = Annotated[str | None, shown("DURATION", "(default: no limit)")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreArguments:
    """A command that reads or writes a store."""

    store: Annotated[str | None, shown("URL", "(default: $PROTEIN_STORE, or runs/protein.db)")] = None
    """Where trials are kept: a path, sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE."""
