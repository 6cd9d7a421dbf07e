"""What is due when in a run of any kind, and when the step size begins to fall."""

import pytest

from protein.trainer.config import TrainConfig
from protein.trainer.config_rules import LRSchedule
from protein.trainer.course.decay import decay_is_next, rate_stays
from protein.trainer.course.pace import Pace


def test_checkpoints_are_due_by_their_interval_and_lie_further_apart_where_they_take_long() -> None:
    pace = Pace(100, 10.0, processes=1)
    pace.begin(0, 5.0)
    assert not pace.checkpoint_due(14.9) and pace.checkpoint_due(15.0)
    pace.saved(15.0)
    pace.took(0.3)  # at most 1 % of the time: 30 seconds
    assert not pace.checkpoint_due(44.9) and pace.checkpoint_due(45.0)
    several = Pace(100, 10.0, processes=2)
    several.took(0.3)
    assert several.checkpoint_due(10.0), "each has measured another time, and they must agree"
    assert not Pace(100, 0.0, processes=1).checkpoint_due(1e9)


def test_reports_are_due_by_the_share_that_is_done_and_by_the_clock() -> None:
    pace = Pace(1000, 0.0, processes=1)
    pace.begin(0, 0.0)
    assert not pace.report_due(19, 5.0) and pace.report_due(20, 5.0)
    assert not pace.report_due(20, 0.4) and pace.report_due(1, 10.0)
    assert not pace.unreported(0) and pace.unreported(1)
    pace.reported(20, 5.0)
    assert not pace.report_due(39, 9.0) and not pace.unreported(20)


@pytest.mark.parametrize(("steps", "is_next"), [(0, False), (60, False), (70, True), (80, False), (90, False)])
def test_the_decay_begins_in_the_step_whose_middle_is_past_it(steps: int, is_next: bool) -> None:
    """It begins after 75 of 100 steps: the batch of 70 to 80 has its middle there."""
    settings = TrainConfig(lr_schedule="wsd", decay_fraction=0.26)
    assert decay_is_next(settings, 100, steps, next_size=10, full_size=10) is is_next
    other = TrainConfig(lr_schedule="cosine", decay_fraction=0.26)
    assert not decay_is_next(other, 100, steps, next_size=10, full_size=10)


@pytest.mark.parametrize(
    ("schedule", "progress", "stays"),
    [("constant", 1.0, True), ("wsd", 0.7, True), ("wsd", 0.8, False), ("cosine", 0.1, False), ("linear", 0.1, False)],
)
def test_a_longer_run_goes_on_from_where_the_rate_has_not_fallen(
    schedule: LRSchedule, progress: float, stays: bool
) -> None:
    assert rate_stays(TrainConfig(lr_schedule=schedule, decay_fraction=0.25), progress) is stays
