"""What is said of a stored sweep at a glance, and by its models: it is true of the store, whatever the sweep holds."""

import dataclasses
import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_trials import PROVENANCE, add_run, fill_store, start_trial, store_url
from store_samples import ended_owner

from protein.api.answers import Answers
from protein.api.definition import create_or_resume, define_trainer_sweep
from protein.api.overview import (
    Line,
    Overview,
    again_command,
    changes,
    glance,
    next_of,
    overview,
    wider_bound,
    wider_lines,
)
from protein.api.recommended import initial_params
from protein.config.resolve import load, make_space
from protein.engine.results import RangeEnd
from protein.ports import Store
from protein.space import Float, Integer, Space
from protein.storage import open_store
from protein.types import (
    Direction,
    Limit,
    Outcome,
    Params,
    Suggestion,
    SuggestionKind,
    SweepRecord,
    SweepSpec,
    Trial,
    TrialEnd,
)

End = tuple[TrialEnd, float | None, str]  # of a trial: how, score as stored, reason
GOOD: End = (TrialEnd.COMPLETE, 1.0, "")
DIVERGED: End = (TrialEnd.DIVERGED, None, "diverged: loss is nan")
MEMORY: End = (TrialEnd.OUT_OF_MEMORY, None, "out of memory")


def advice(found: Overview) -> tuple[Line, ...]:
    """What to do next, by the store and by the models, as views show it."""
    return found.next + (() if found.found is None else next_of(found.found, found.life))


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[tuple[Store, str]]:
    """The store of `fill_store`, opened, and its address."""
    fill_store(url := store_url(tmp_path))
    store = open_store(url)
    yield store, url
    store.close()


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Store]:
    store = open_store(store_url(tmp_path))
    yield store
    store.close()


def started(store: Store, sweep: SweepRecord, params: Params, *, owner: str = "h:1:0") -> Trial:
    suggestion = Suggestion(params=params, kind=SuggestionKind.SEARCH, origin="search")
    kept: Any = {"seed": 0, "owner": owner, "provenance": PROVENANCE}
    return store.start_trial(sweep.id, suggestion, lease_seconds=600.0, suggest_seconds=0.0, **kept)


def own(
    store: Store,
    ends: Sequence[End],
    *,
    direction: Direction = Direction.MAXIMIZE,
    ended: str = "",
    owner: str = "h:1:0",
) -> SweepRecord:
    """A sweep over a function whose trials ended so."""
    spec = SweepSpec(
        name="own",
        env="train()",
        method="protein",
        seed=0,
        direction=direction,
        space=Space([Float("lr", 1e-3, 1.0, scale="log")]).to_dict(),
        config={"own": {"start": None}},
        provenance=PROVENANCE,
    )
    sweep = store.create_sweep(spec, None)
    for number, (end, score, reason) in enumerate(ends):
        trial = started(store, sweep, {"lr": 0.01 * (number + 1)})
        store.finish_trial(trial, Outcome(end=end, score=score, cost_seconds=1.0, steps=1, reason=reason))
    if ended:
        store.set_ended(sweep.id, ended)
    return next(one for one in store.list_sweeps() if one.id == sweep.id)


def texts(found: Overview) -> list[str]:
    """All sentences of an overview."""
    lines = [*found.state, *advice(found), *(found.found.trust if found.found else ())]
    best = found.found.best if found.found else None
    return [line.text for line in lines] + [found.headline] + ([best.text] if best else [])


def test_the_answers_are_those_of_the_store_and_plain_data(stored: tuple[Store, str]) -> None:
    store, url = stored
    store.set_ended(store.list_sweeps()[0].id, "the budget is spent")
    [sweep] = store.list_sweeps()
    found = overview(store, sweep, url)
    assert json.loads(json.dumps(dataclasses.asdict(found), allow_nan=False))["sweep"] == "pong"
    assert (found.trials, found.best_measured, found.running, found.eta_seconds) == (7, 1, (), None)
    assert found.headline == "Best measured: trial 1, score 18.00 in 40.0s."
    assert [(one.kind, one.count, one.numbers, one.reason) for one in found.failures] == [
        ("failed", 1, (2,), "diverged: loss is nan")  # the interrupted one has not failed
    ]
    assert found.found is not None and found.found.best is not None
    best = found.found.best
    recommended = Answers(store, sweep).recommendation().best
    assert (best.trial, best.runs, best.is_initial) == (recommended.trial.number, 1, False)
    start = initial_params(sweep.spec)
    assert start is not None
    assert [(one.name, one.initial) for one in best.changes] == [
        ("train.learning_rate", f"{start['train.learning_rate']:.6g}")
    ]
    assert "train --env pong --from pong" in best.command and url in best.command
    assert found.found.trust[0].text.startswith(f"Trial {best.trial} was run once: it measured ")
    assert any("--confirm" in line.command for line in advice(found))
    add_run(url, of=best.trial, score=17.5)
    found = overview(store, sweep, url)
    assert found.found is not None and found.found.trust[0].text.startswith("It was run 2 times: ")
    assert not any("--confirm" in line.command for line in advice(found))


@pytest.mark.parametrize(
    ("ends", "headline", "failures"),
    [
        ([], "No trial has ended yet.", []),
        (
            [DIVERGED],
            "The only trial failed, so there is no score. Trial 0 ended with: loss is nan.",
            [("diverged", 1)],
        ),
        (
            [MEMORY, DIVERGED, MEMORY],
            "All 3 trials failed, so there is no score. Trial 2 ended with: out of memory.",
            [("out of memory", 2), ("diverged", 1)],
        ),
        (
            [(TrialEnd.CAPPED, 5.0, "stopped at its cost cap"), DIVERGED],
            "No trial was trained to its end, so nothing can be recommended yet.",
            [("diverged", 1)],
        ),
        ([(TrialEnd.INTERRUPTED, None, "interrupted")], "No trial was trained to its end, so nothing can", []),
        ([GOOD, (TrialEnd.COMPLETE, 2.0, "")], "Best measured: trial 1, score 2.000 in 1.00s.", []),
    ],
)
def test_a_sweep_says_what_is_so(empty: Store, ends: list[End], headline: str, failures: list[tuple[str, int]]) -> None:
    found = overview(empty, own(empty, ends))
    assert found.headline.startswith(headline)
    assert [(one.kind, one.count) for one in found.failures] == failures
    has_score = any(end is TrialEnd.COMPLETE for end, _, _ in ends)
    assert found.found is not None and (found.found.best is not None) == has_score != bool(found.found.why_none)
    assert all(not text[:1].islower() and text[-1] in ".:?!" for text in texts(found)), texts(found)


def test_of_a_loss_the_lowest_score_is_best(empty: Store) -> None:
    found = overview(
        empty, own(empty, [(TrialEnd.COMPLETE, -1.0, ""), (TrialEnd.COMPLETE, -0.25, "")], direction=Direction.MINIMIZE)
    )
    assert found.lower_is_better and found.headline == "Best measured: trial 1, score 0.250 in 1.00s."
    assert found.found is not None and found.found.best is not None and found.found.best.trial == 1


def test_how_it_ended_is_said_with_what_goes_on(empty: Store) -> None:
    error = own(empty, [GOOD], ended="error: the disk is full")
    assert [line.text for line in glance(empty, error).state] == [
        "It ended with an error: the disk is full. Run your program again to go on."
    ]
    layers = load("pong")
    killed, _ = create_or_resume(empty, define_trainer_sweep(layers, layers.sweep, None), 60.0)
    started(empty, killed, make_space(layers).default(), owner=ended_owner())
    found = glance(empty, killed)
    assert found.life == "gone" and found.running == () and "was killed" in found.state[0].text
    assert found.counts == ("1 interrupted",)  # which does not wait: nothing will start it
    assert found.state[0].command.endswith("sweep --env pong")


def test_what_runs_is_said_with_its_score_and_how_long_the_budget_lasts(stored: tuple[Store, str]) -> None:
    store, _ = stored
    start_trial(store)
    [sweep] = store.list_sweeps()
    found = glance(store, sweep)
    assert [(one.number, one.score, one.cost_seconds) for one in found.running] == [(7, 2.0, 2.0)]
    assert found.eta_seconds == pytest.approx(240.0 - found.spent_seconds)  # a trial of this store takes no time at all
    assert found.state[0].text == "1 trial runs now; the budget lasts about 8.00s more."
    found = overview(store, sweep)
    assert found.found is not None and any(line.command for line in found.found.next)
    assert all(line.text.startswith("When it has ended: ") for line in advice(found) if "again" in line.text)
    assert not any("--confirm" in line.command for line in advice(found))  # beside the process it would be refused


def test_a_command_that_goes_on_defines_the_same_sweep(empty: Store) -> None:
    layers = load("pong")
    wanted = define_trainer_sweep(layers, layers.sweep, "mine")
    sweep, _ = create_or_resume(empty, wanted, 60.0)
    assert again_command(sweep, None, "--max-cost", "2m").endswith("sweep --env pong --name mine --max-cost 2m")
    limited = dataclasses.replace(sweep, spec=sweep.spec.with_limits([Limit("memory_gb", "<=", 8.0)]))
    assert again_command(limited, None).endswith("--require 'memory_gb <= 8'")
    other = load("pong", flags={"train.gamma": 0.9})
    changed, _ = create_or_resume(empty, define_trainer_sweep(other, other.sweep, "other"), 60.0)
    assert again_command(changed, None) == ""  # it was given values that are not stored as flags


def test_the_command_for_wider_ranges_widens_them(empty: Store, tmp_path: Path) -> None:
    layers = load("pong")
    sweep, _ = create_or_resume(empty, define_trainer_sweep(layers, layers.sweep, None), 60.0)
    about: Any = {"probability": 0.95, "effect": 1.0, "natural": False}
    ends = [
        RangeEnd(name="train.ent_coef", end="high", bound=0.05, best_value=0.05, **about),
        RangeEnd(name="policy.hidden_size", end="low", bound=16, best_value=16, **about),
    ]
    *_, last = wider_lines(sweep, ends, None)
    _, content, _, file, *rest = shlex.split(last.command)
    assert file == "pong-wider.toml" and "--warm-start pong" in " ".join(rest)
    (path := tmp_path / file).write_text(content.replace("\\n", "\n"))
    old, new = make_space(layers), make_space(load("pong", config_file=path))
    assert new.names == old.names
    ranges = [space.to_dict()["parameters"] for space in (old, new)]
    changed = [{**one, **other} for one, other in zip(*ranges, strict=True) if one != other]
    assert [(one["name"], one["low"], one["high"]) for one in changed] == [
        ("policy.hidden_size", 8, 256),
        ("train.ent_coef", 1e-5, 0.42),
    ]


@given(
    st.sampled_from(["linear", "log", "logit", "pow2"]),
    st.booleans(),
    st.sampled_from(["low", "high"]),
    st.floats(0.001, 0.4),
    st.floats(1.5, 2.4),
)
def test_a_wider_range_holds_the_old_one(scale: Any, is_integer: bool, end: Any, low: float, factor: float) -> None:
    if scale == "pow2":
        parameter: Float | Integer = (
            Integer("x", 2, 64, scale="pow2") if is_integer else Float("x", 0.25, 8.0, scale="pow2")
        )
    elif is_integer and scale != "logit":
        parameter = Integer("x", 2 + int(100 * low), 5 + int(100 * low * factor) + 3, scale=scale)
    else:
        parameter = Float("x", low, low * factor, scale=scale)
    bound = parameter.low if end == "low" else parameter.high
    found = RangeEnd(name="x", end=end, bound=bound, best_value=bound, probability=0.95, effect=1.0, natural=False)
    wide = wider_bound(Space([parameter]), found)
    if wide is None:
        return
    side: Any = {"low": wide} if end == "low" else {"high": wide}
    wider = dataclasses.replace(parameter, **side)
    assert (
        wider.low <= parameter.low
        and wider.high >= parameter.high
        and (wider.low, wider.high) != (parameter.low, parameter.high)
    )


def test_values_differ_where_they_or_their_kind_do() -> None:
    assert changes({"a": 1, "b": 2.0, "c": "x"}, {"a": 1, "b": 2.0, "c": "x"}) == ()
    found = changes({"a": 1, "gone": None}, {"a": True, "new": "x"})
    assert [(one.name, one.value, one.initial) for one in found] == [
        ("a", "True", "1"),
        ("new", "x", None),
        ("gone", None, "null"),
    ]
