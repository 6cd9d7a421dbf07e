"""The training score over a window of episodes, of one process and of several."""

from typing import Any

from protein.trainer.machine.distributed import World
from protein.trainer.ppo.state import Scores


class Several(World):
    """The first of some processes, which hears of the others' scores."""

    def __init__(self, others: list[Any]) -> None:
        super().__init__()
        self.others = others

    def gather(self, value: Any) -> list[Any]:
        return [value, *self.others]


def test_the_window_holds_the_last_episodes() -> None:
    scores = Scores(3, World())
    assert scores.summary().mean is None and scores.summary().episodes == 0
    scores.add(10, [1.0, 2.0], 2)
    assert scores.summary().mean is None, "a window that is not full favours short episodes"
    scores.add(20, [6.0, 7.0], 2)
    assert scores.summary().scores == [2.0, 6.0, 7.0] and scores.summary().mean == 5.0
    assert scores.summary().episodes == 4


def test_a_resumed_run_counts_on() -> None:
    scores = Scores(3, World())
    scores.add(10, [4.0, 5.0], 90)
    scores.add(20, [6.0], 1)
    assert scores.summary().scores == [4.0, 5.0, 6.0] and scores.summary().episodes == 91


def test_of_several_processes_the_last_episodes_of_all_count_whoever_they_are_of() -> None:
    scores = Scores(4, Several([([(10, -1.0), (20, -2.0), (30, -3.0), (30, -4.0)], 6)]))
    scores.add(10, [1.0], 1)
    scores.add(20, [2.0], 1)
    scores.add(30, [3.0], 1)
    summary = scores.summary()
    assert summary.scores == [-2.0, 3.0, -3.0, -4.0] and summary.episodes == 9
