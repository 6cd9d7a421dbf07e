"""How an outlook reads: as plain data, and beside what came."""

import io

from rich.console import Console

from protein.engine.outlook import Hindsight
from protein.engine.results import BEST_80, Outlook, Rise
from protein.view import outlook as views

AHEAD = Outlook(best_per_second=2.0 / 600.0, front_per_second=1.0 / 600.0, spent_seconds=7200.0)


def test_plain_data_has_the_interval_of_each_span() -> None:
    assert views.plain(None) is None
    found = views.plain(AHEAD)
    assert found is not None and [one["seconds"] for one in found] == [600.0, 3600.0]
    assert found[0]["best"] == {"value": 2.0, "low": 0.0, "high": 2.0 * BEST_80}
    assert set(found[0]) == {"seconds", "best", "front"}


def test_earlier_outlooks_stand_beside_what_came() -> None:
    looks = [
        Hindsight(after_seconds=60.0, seconds=60.0, forecast=Rise(expected=1.0, high=2.0), rise=1.5),
        Hindsight(after_seconds=120.0, seconds=60.0, forecast=Rise(expected=0.5, high=1.0), rise=3.0),
    ]
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(views.table(looks, 100))
    rows = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert "1m00s 1m00s 1.000 (0 to 2.000) 1.500 yes" in rows
    assert "2m00s 1m00s 0.500 (0 to 1.000) 3.000 no" in rows
    assert views.plain_hindsight(looks[1]) == {
        "after_seconds": 120.0,
        "seconds": 60.0,
        "expected": {"value": 0.5, "low": 0.0, "high": 1.0},
        "came": 3.0,
        "inside": False,
    }
