"""Which precision is fastest, by a table of measured rows: that of acting and that of the update apart.

The table is `precisions.json` beside this module. `benchmarks/gpu.py` measures its rows on a GPU; nobody writes them by
hand. It is an object with `rows`, and each row is an object:

    device      the GPU's name, as `torch.cuda.get_device_name` gives it; for people
    capability  [major, minor], as `torch.cuda.get_device_capability` gives it: the kind of device
    part        "acting" (a step of all agents) or "update" (a minibatch)
    network     the encoder, and the memory behind it where there is one: "mlp", "cnn", "mlp+lstm", "mlp+mingru", ...
    hidden      policy.hidden_size, units
    samples     agents of a step (env.num_envs times those of an environment), or samples of a minibatch
    ns          an object: nanoseconds a sample by precision, of "fp32", "tf32", "bf16" and "fp16". fp32 must be there

Where `train.precision` is "auto", a part of a run takes the row of its kind of device, its network and its part with
the largest `hidden`, and then the most `samples`, that are not above its own: what lower precision gains grows with
both. In that row the precision with the fewest nanoseconds counts; of equal ones the fuller. So what is chosen was
never slower than fp32 or TF32 there. Without such a row it is as it was before there was a table: TF32.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from protein.envs_c import names, spec

from ..config import PolicyConfig, RunConfig, TrainConfig
from ..settings import Precision
from .precision import FULL, update_precision

FILE = Path(__file__).with_name("precisions.json")
ORDER: tuple[Precision, ...] = ("fp32", "tf32", "bf16", "fp16")  # the fuller first


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table: see the head of this file."""

    device: str
    capability: tuple[int, int]
    part: Literal["acting", "update"]
    network: str
    hidden: int
    samples: int
    ns: Mapping[str, float]

    @property
    def fastest(self) -> Precision:
        return min((name for name in ORDER if name in self.ns), key=lambda name: self.ns[name])


class Precisions(NamedTuple):
    """Of a run: `auto` where no row says more (TF32 on CUDA), or one of the others."""

    acting: Precision
    update: Precision

    @property
    def products(self) -> Precision:
        """What holds for products of float32 wherever nothing else is said: the update's, or that of acting."""
        return self.update if self.update in FULL else self.acting

    @property
    def text(self) -> str:
        return self.acting if self.acting == self.update else f"{self.acting}, updates in {self.update}"


def network_of(policy: PolicyConfig) -> str:
    """Returns what a row calls a network; "" for one of the user's own, of which there are no rows."""
    if policy.module:
        return ""
    return policy.encoder if policy.recurrence == "none" else f"{policy.encoder}+{policy.recurrence}"


def read(text: str) -> tuple[Row, ...]:
    """Returns the rows of a table.

    Raises:
        ValueError: it is no such table, with the number of the row that is wrong.
    """
    rows = []
    for number, given in enumerate(json.loads(text)["rows"], 1):
        try:
            row = Row(**{**given, "capability": tuple(given["capability"])})
            numbers = (*row.capability, row.hidden, row.samples, *row.ns.values())
            known = row.part in ("acting", "update") and "fp32" in row.ns and set(row.ns) <= set(ORDER)
            if not known or len(row.capability) != 2 or not all(value > 0 for value in numbers[2:]):
                raise ValueError(given)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"row {number} of a table of precisions is wrong: {given}") from error
        rows.append(row)
    return tuple(rows)


def written(rows: Sequence[Row]) -> str:
    """Returns the text of a table, a line for each row; `read` reads it back."""
    lines = (json.dumps(dataclasses.asdict(row)) for row in rows)
    return '{"rows": [\n' + ",\n".join(lines) + "\n]}\n"


@functools.cache
def shipped() -> tuple[Row, ...]:
    """Returns the rows of the table that comes with this package."""
    return read(FILE.read_text(encoding="utf-8"))


def look_up(
    rows: Sequence[Row], *, capability: tuple[int, int], part: str, network: str, hidden: int, samples: int
) -> Precision:
    """Returns the fastest precision by the row that counts, or `auto` where there is none."""
    fitting = [
        row
        for row in rows
        if (row.capability, row.part, row.network) == (capability, part, network)
        and row.hidden <= hidden
        and row.samples <= samples
    ]
    if not fitting:
        return "auto"
    return max(fitting, key=lambda row: (row.hidden, row.samples)).fastest


def given_precisions(train: TrainConfig) -> Precisions:
    """Returns the precisions as the config has them, perhaps `auto`."""
    return Precisions(train.precision, update_precision(train))


def _agents(config: RunConfig) -> int:
    """Returns the agents for which a step acts. An environment that is no C environment counts as one agent.

    How many agents such an environment has is known when it is made, which is after its run has chosen. Fewer agents
    never choose what was slower.
    """
    name, num_envs = config.env.name, config.env.num_envs
    if name not in names():
        return num_envs
    of_env = spec(name)
    return num_envs * (of_env.agents_per_env // of_env.sides if config.selfplay.on else of_env.agents_per_env)


def precisions_of(
    config: RunConfig,
    device: torch.device,
    *,
    processes: int = 1,
    before: Sequence[Precision] | None = None,
    rows: Sequence[Row] | None = None,
    capability: tuple[int, int] | None = None,
) -> Precisions:
    """Returns the precisions of a run's acting and of its update, each chosen where it is `auto`.

    Args:
        config: of the run.
        device: of the run.
        processes: that train together; each has its share of the agents and of a minibatch.
        before: those of the run that is resumed, which it keeps where it is `auto`; None: it is new, or chose nothing.
        rows: of the table; None: those that come with this package.
        capability: of the device; None: as it says itself.
    """
    train = config.train
    given = given_precisions(train)
    if device.type != "cuda" or "auto" not in given:
        return given
    if before is not None:
        return Precisions(*(was if now == "auto" else now for was, now in zip(before, given, strict=True)))
    rows = shipped() if rows is None else rows
    if not rows:
        return given
    here: dict[str, Any] = {
        "capability": torch.cuda.get_device_capability(device) if capability is None else capability,
        "network": network_of(config.policy),
        "hidden": config.policy.hidden_size,
    }
    acting, update = given
    if acting == "auto" and not train.cpu_inference:  # else the network that acts is on the CPU
        acting = look_up(rows, **here, part="acting", samples=_agents(config) // processes)
    if update == "auto":
        share = train.minibatch_size // processes // train.accumulation_steps
        update = look_up(rows, **here, part="update", samples=share)
    if train.overlap and acting in FULL and update in FULL:
        # Whether products are in TF32 is one setting of the process, and both threads compute at once.
        acting = update if given.acting == "auto" else acting
        update = acting if given.update == "auto" else update
    return Precisions(acting, update)
