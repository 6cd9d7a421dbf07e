"""All tasks of the comparison, by group: synthetic landscapes, recorded training, real training.

synthetic  `engine.synthetic`: learning curves with known truth; a seed draws another problem
recorded   `engine.recorded`: this project's trainer, through a surrogate fitted to recorded trials
real       `engine.real`: scikit-learn models trained on bundled data, costs by the process's CPU time
"""

from engine import real, recorded, synthetic
from engine.protocol import Task

GROUPS: dict[str, tuple[str, ...]] = {
    "synthetic": synthetic.FAMILIES,
    "recorded": recorded.FAMILIES,
    "real": real.FAMILIES,
}
FAMILIES = tuple(family for families in GROUPS.values() for family in families)


def make_task(family: str, seed: int) -> Task:
    """Returns a family's problem of a seed. Raises `ValueError` for an unknown family."""
    if family in synthetic.FAMILIES:
        return synthetic.make_synthetic(family, seed)
    if family in recorded.FAMILIES:
        return recorded.make_recorded(family, seed)
    if family in real.FAMILIES:
        return real.make_real(family, seed)
    raise ValueError(f"unknown family {family!r}; known: {', '.join(FAMILIES)}")
