"""A store with sweeps of a planted function, for tests of pages that show what models found: that is known."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from browser import LAPTOP, Served, View, fill_sweep, opened
from patience import PATIENCE_SECONDS
from planted_sweeps import Array, searched
from playwright.sync_api import Browser

from protein.space import Categorical, Float, Integer, Space
from protein.types import Direction

# What `fill_planted` plants: `width` has its best values on the high end, `lr` at a share of 0.4 of its
# range, `nothing` does nothing, and the score rises with the steps. New sweeps are better than old ones by
# `NEW_IS_BETTER`.
PLANTED = Space(
    [
        Float("lr", 1e-4, 1e-1, scale="log"),
        Integer("width", 16, 256, scale="pow2"),
        Float("nothing", 0.0, 1.0),
        Categorical("kind", ("plain", "fancy")),
        Integer("steps", 1000, 100_000, scale="log"),
    ],
    cost_parameter="steps",
)
NEW_IS_BETTER = 3.0


def fill_planted(url: str, *, num_trials: int = 40) -> None:
    """Adds the sweeps old-pong-1, old-pong-2, new-pong-1 and new-pong-2 to a store; all minimise their score."""
    for side, gain in (("old", 0.0), ("new", NEW_IS_BETTER)):
        for seed in (1, 2):

            def score(x: Array, gain: float = gain) -> float:
                return float(gain - 10.0 * (x[0] - 0.4) ** 2 + 3.0 * x[1] + 2.0 * x[4])

            trials = searched(
                PLANTED,
                score,
                num_trials=num_trials,
                seed=seed,
                noise=0.1,
                seconds=lambda x: float(100.0 ** x[4]),
                num_random=12,
            )
            fill_sweep(
                url,
                f"{side}-pong-{seed}",
                [(one.params, -(one.score or 0.0), one.cost_seconds, "") for one in trials],
                direction=Direction.MINIMIZE,
                env="pong",
                space=PLANTED,
            )


@pytest.fixture(scope="session")
def planted_served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of the store of `fill_planted`, which all tests only read."""
    url = f"sqlite:///{tmp_path_factory.mktemp('planted')}/protein.db"
    fill_planted(url)
    server = Served(url)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def kept_planted(browser: Browser, planted_served: Served) -> Iterator[View]:
    with opened(browser, planted_served, {**LAPTOP, "viewport": {"width": 1280, "height": 900}}) as view:
        yield view


@pytest.fixture
def view_of_planted(kept_planted: View) -> Iterator[View]:
    """The page of that store, which tests share."""
    kept_planted.forget()
    yield kept_planted
    kept_planted.check()


def asked(served: Served, path: str, status: int = 200, **params: Any) -> Any:
    """Returns the server's answer to a question such as "curves", which has to have this status.

    As a page does, it asks again while the answer says that it is being computed.
    """
    query = urllib.parse.urlencode(params, doseq=True)
    try:
        with urllib.request.urlopen(f"{served.address}api/{path}?{query}", timeout=PATIENCE_SECONDS) as response:
            found, given = response.status, json.load(response)
    except urllib.error.HTTPError as error:
        found, given = error.code, json.load(error)
    if path in ("slices", "map", "matters", "importance") and given.get("state") == "computing":
        time.sleep(0.2)
        return asked(served, path, status, **params)
    assert found == status, given
    return given
