"""`status` and `best` say which parameters have their best values on the end of their range."""

from browser import Served
from commands import Run

from protein.api.answers import Answers
from protein.storage import open_store

LINE = (
    "the best values of width lie on the high end of its range (256): better ones may lie above, so widen the range in"
    " the next sweep"
)


def test_status_and_best_name_the_planted_parameter(planted_served: Served, run: Run) -> None:
    url = planted_served.store_url
    assert f"  {LINE[0].upper()}{LINE[1:]}." in run(f"status new-pong-1 --store {url}").splitlines()
    assert LINE in run(f"best new-pong-1 --store {url}").splitlines()
    assert run.json(f"status new-pong-1 --store {url} --json")["range_ends"] == [LINE]
    [end] = run.json(f"best new-pong-1 --store {url} --json")["range_ends"]
    assert (end["name"], end["end"], end["bound"], end["text"]) == ("width", "high", 256, LINE)
    assert end["probability"] >= 0.9


def test_a_sweep_whose_space_cannot_be_read_has_none(served: Served) -> None:
    store = open_store(served.store_url)
    sweep = store.find_sweep("loss")
    assert sweep is not None
    assert list(Answers(store, sweep).range_ends()) == []
    store.close()
