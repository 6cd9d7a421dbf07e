"""A parameter whose best values lie on the end of its range, in words; `protein.analysis.range_ends` finds them."""

import dataclasses
from typing import Literal

from protein.types import ParamValue


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RangeEnd:
    """A parameter whose best values lie on the end of its range.

    Attributes:
        name: of the parameter.
        end: which end.
        bound: the value there.
        best_value: that of the best expected config.
        probability: that the score is highest in the end zone.
        effect: by how much the best value is better than a random one, in standard deviations of the scores.
        natural: whether nothing lies beyond, as far as the bound tells (0 and 1 of a share or a probability, 0 or 1 of
            a count). Then there is nothing to widen.
    """

    name: str
    end: Literal["low", "high"]
    bound: ParamValue
    best_value: ParamValue
    probability: float
    effect: float
    natural: bool

    def text(self) -> str:
        """Returns it as a sentence without a full stop, with what to do."""
        bound = f"{self.bound:.6g}" if isinstance(self.bound, float) else str(self.bound)
        said = f"the best values of {self.name} lie on the {self.end} end of its range ({bound})"
        if self.natural:
            return f"{said}: nothing may lie beyond it, but it could be fixed there"
        side = "below" if self.end == "low" else "above"
        return f"{said}: better ones may lie {side}, so widen the range in the next sweep"
