"""What the views say of a language model: tokens, bits per byte, and what it writes; in terminals, figures, pages."""

import dataclasses
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from browser import View
from language_runs import small, write_corpus
from playwright.sync_api import expect
from rich.console import Console
from sample_trials import PROVENANCE, curve, fill_store, sweep_record, trial
from whole_runs import go

from protein.api import plan
from protein.api.recommended import score_range, shown_trials
from protein.cli.train import language_end
from protein.config.resolve import load, make_space
from protein.errors import UsageError
from protein.storage import open_store
from protein.sweep import resuming
from protein.sweep.limits import total_steps, trial_config
from protein.trainer.events import Measurement as MeasurementEvent
from protein.trainer.events import Result, RunResult, Start
from protein.trainer.kinds import LANGUAGE
from protein.trainer.language.config import LanguageConfig
from protein.types import Artifact, Estimate, Measurement, Outcome, Suggestion, SuggestionKind, SweepSpec, TrialEnd
from protein.view import text
from protein.view.figures.curves import curves
from protein.view.training import PlainWatcher, TrainingState, training_view

ViewOf = Callable[..., View]
START = Start(
    event="start",
    env="text/python",
    steps=0,
    device="cpu",
    processes=1,
    threads=4,
    parameters=890_000,
    startup_seconds=1.0,
    compiled=False,
    notes=[],
    precision="fp32",
    micro_batch=8,
    peak_flops=1e11,
)


def spec(flags: Mapping[str, Any] | None = None) -> SweepSpec:
    """Returns the definition of a sweep of the shipped language model."""
    layers = load("text/python", for_sweep=True, flags=flags or {})
    return SweepSpec(
        name="text-python",
        env="text/python",
        method="protein",
        seed=0,
        space=make_space(layers).to_dict(),
        config=layers.run_config().to_dict(),
        provenance=PROVENANCE,
    )


def measured(steps: int, score: float | None) -> MeasurementEvent:
    metrics = {"train_loss": 1.875, "learning_rate": 0.003, "peak_share": 0.25, "forward_seconds": 1.0}
    if score is not None:
        metrics |= {"loss": 1.5, "bits_per_byte": -score}
    return MeasurementEvent(
        event="measurement", steps=steps, elapsed_seconds=steps / 20_000, score=score, metrics=metrics
    )


def state() -> TrainingState:
    return TrainingState(
        env="text/python",
        total_steps=1_000_000,
        unit=LANGUAGE.unit,
        evaluation=LANGUAGE.held_out,
        held_out=LANGUAGE.held_out,
        score_means=LANGUAGE.score_means,
    ).after(START)


def result(score: float) -> Result:
    return Result(
        event="result",
        score=score,
        steps=1_000_000,
        elapsed_seconds=50.0,
        timings={},
        metrics={"bits_per_byte": -score, "loss": 1.4, "evaluation_tokens": 1e6},
        checkpoint=None,
        continuable=None,
        continuable_seconds=None,
        stopped="steps",
    )


def drawn(shown: TrainingState, width: int = 120, height: int = 30) -> str:
    console = Console(file=io.StringIO(), width=width, height=500, color_system=None)
    console.print(training_view(shown, width, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_dashboard_counts_tokens_and_names_the_score() -> None:
    shown = state()
    for number in range(1, 11):
        shown = shown.after(measured(50_000 * number, -6.0 + 0.4 * number if number % 2 else None))
    picture = drawn(shown)
    assert (
        "training text/python: 890,000 parameters on cpu in fp32, threads: 4, micro-batches of 8 sequences" in picture
    )
    assert "25.0s left   500k of 1M tokens in 25.0s, 20k tokens/s" in picture
    assert "score -2.400 (minus bits per byte)" in picture
    assert "training loss" in picture and "1.875" in picture and "share of peak" in picture and "25.0 %" in picture
    assert "steps" not in picture and "episodes" not in picture
    evaluating = shown.after(measured(1_000_000, -2.0))
    assert "evaluating on validation text" in drawn(evaluating)
    assert "score -1.934 (minus bits per byte) on validation text, -2.000 in training" in drawn(
        evaluating.after(result(-1.934))
    )


def test_plain_lines_say_the_loss_where_no_score_was_measured() -> None:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    watcher = PlainWatcher(console, state())
    for event in (measured(50_000, None), measured(100_000, -3.25)):
        watcher(event)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "50,000 of 1,000,000 tokens, training loss 1.875  20k tokens/s, 2.50s, 47.5s left",
        "100,000 of 1,000,000 tokens, score -3.250  20k tokens/s, 5.00s, 45.0s left",
    ]


def test_the_end_says_the_loss_the_sample_and_what_is_next() -> None:
    ended = RunResult(
        score=-1.93412,
        steps=9,
        elapsed_seconds=1.0,
        timings={},
        metrics={"bits_per_byte": 1.93412, "loss": 1.34062, "evaluation_tokens": 65_000.0},
        checkpoint=None,
        interrupted=False,
        sample="def f(\x1b[31mx):\n    return [x]\n",
    )
    config = LanguageConfig.from_dict({"train": {"total_tokens": 9, "max_seconds": 60.0}})
    lines = "\n".join(language_end(ended, Path("best.safetensors"), config))
    assert "score -1.934: 1.934 bits per byte, 1.341 nats per token, over 65,000 tokens" in lines
    assert "it writes\n  def f([31mx):\n      return [x]\n" in lines  # without what would steer the terminal
    assert lines.endswith("eval --checkpoint best.safetensors --prompt 'def '")
    assert "it writes" not in "\n".join(language_end(dataclasses.replace(ended, sample=None), Path("x"), config))
    assert "ended it" not in lines
    ends = {"total_tokens": 1_000_000, "max_seconds": 60.0}
    fallen = LanguageConfig.from_dict({"train": ends})
    assert "ended it" not in "\n".join(language_end(dataclasses.replace(ended, steps=436_789), Path("x"), fallen))
    longer = LanguageConfig.from_dict({"train": ends | {"schedule_end": "tokens"}})
    assert (
        "--train.max-seconds 60 ended it after 44% of its tokens, before the step size had fallen; with"
        " --train.total-tokens 430000 it fits the time, and most often scores higher"
    ) in language_end(dataclasses.replace(ended, steps=436_789), Path("x"), longer)


@pytest.mark.parametrize(
    ("score", "shown"),
    [
        (-1.9341, "-1.934"),
        (-0.5, "-0.500"),
        (-0.0123, "-0.0123"),
        (-10.0, "-10.00"),
        (0.0, "0.000"),
        (3.14159, "3.142"),
    ],
)
def test_bits_per_byte_have_three_decimals(score: float, shown: str) -> None:
    assert text.score(score) == shown


def test_the_possible_scores_end_at_zero() -> None:
    for env in ("text/python", "text/stories"):
        assert score_range(dataclasses.replace(spec(), env=env)) == (float("-inf"), 0.0)
    record = dataclasses.replace(sweep_record("text-python"), spec=spec())
    predicted = Estimate(value=-0.1, low=-0.4, high=0.2)
    [shown] = shown_trials(record, [dataclasses.replace(trial(0, 5.0, -1.0), predicted_score=predicted)])
    assert shown.predicted_score == Estimate(value=-0.1, low=-0.4, high=0.0)


def test_a_sweep_knows_when_its_trials_end_and_go_on() -> None:
    config = trial_config(spec().config, {"train.total_tokens": 123_456}, seed=7, threads=2, max_trial_seconds=30.0)
    assert config["train"]["schedule_end"] == "tokens", "a trial does not depend on the machine's speed"
    assert total_steps(config) == 123_456
    assert (config["train"]["seed"], config["train"]["threads"], config["train"]["max_seconds"]) == (7, 2, 30.0)
    assert resuming.why_never_continued(spec()) is None
    assert "with train.lr_schedule = cosine the step size has fallen" in str(
        resuming.why_never_continued(spec({"train.lr_schedule": "cosine"}))
    )
    assert resuming.why_never_continued(spec({"train.total_tokens": 5_000})) == (
        "trials are never continued: train.total_tokens is not searched as the cost parameter"
    )


def test_the_picture_of_curves_runs_over_tokens() -> None:
    record = dataclasses.replace(sweep_record("text-python"), spec=spec())
    one = dataclasses.replace(trial(0, 10.0, -2.0), curve=curve(-2.0, 10.0))
    assert curves([(record, [one])], x="steps").axes[0].get_xlabel() == "tokens"


@pytest.fixture
def page(tmp_path: Path, view_of: ViewOf) -> Iterator[View]:
    """A page of a store with one finished trial, which left a sample, and one that has measured nothing yet."""
    (tmp_path / "runs").mkdir()
    url = f"sqlite:///{tmp_path}/runs/protein.db"
    folder = tmp_path / "runs" / "text-python" / "0000"
    folder.mkdir(parents=True)
    (folder / "sample.txt").write_text("def <b>f</b>(x):\n    return x\n")
    go(small(write_corpus(tmp_path / "words"), steps=1, eval={"sample_tokens": 0}), folder)
    store = open_store(url)
    sweep = store.create_sweep(spec(), 600.0)
    for seed in range(2):
        started = store.start_trial(
            sweep.id,
            Suggestion(params={"train.total_tokens": 200_000}, kind=SuggestionKind.RANDOM, origin="random"),
            seed=seed,
            owner="test",
            lease_seconds=600.0,
            suggest_seconds=0.1,
            provenance=PROVENANCE,
        )
        if seed:
            break
        points = [Measurement(steps=n * 20_000, elapsed_seconds=n, score=-4.0 + n / 10) for n in range(1, 11)]
        store.add_measurements(started, points, 600.0)
        left = [
            Artifact(kind="checkpoint", path=str(folder / "checkpoint.safetensors")),
            Artifact(kind="sample", path=str(folder / "sample.txt")),
        ]
        outcome = Outcome(
            end=TrialEnd.COMPLETE, score=-2.9876, cost_seconds=10.0, steps=200_000, metrics={"bits_per_byte": 2.9876}
        )
        store.finish_trial(started, outcome, left)
    store.close()
    yield view_of(url)


def test_the_page_of_a_trial_shows_what_the_model_writes(page: View) -> None:
    page.open("trial/text-python/0?sweep=text-python")
    shown = page.page
    expect(shown.locator(".sample")).to_have_text("def <b>f</b>(x):\n    return x\n")
    expect(shown.get_by_role("heading", name="What it writes")).to_be_visible()
    expect(shown.locator(".figure").nth(0)).to_contain_text("−2.988")
    expect(shown.locator(".figure").nth(2)).to_contain_text("200 000 tokens")
    expect(shown.get_by_role("button", name="tokens")).to_be_visible()
    expect(shown.get_by_text("decisions")).to_have_count(0)
    shown.get_by_text("let it write more, in a terminal").click()
    expect(shown.get_by_text("--prompt 'def '")).to_be_visible()
    page.check_accessible()


def test_the_page_of_a_trial_that_runs_promises_a_sample(page: View) -> None:
    page.open("trial/text-python/1?sweep=text-python")
    expect(page.page.get_by_text("It writes a sample at its end.")).to_be_visible()
    expect(page.page.get_by_text("No score has been measured yet.")).to_be_visible()


def test_the_page_of_curves_runs_over_tokens(page: View) -> None:
    page.open("curves?sweep=text-python")
    expect(page.page.get_by_role("button", name="Tokens")).to_be_visible()
    expect(page.page.locator(".curve-room canvas")).to_be_visible()


def test_a_model_writes_on_demand(page: View) -> None:
    page.open("trial/text-python/0?sweep=text-python")
    shown = page.page
    shown.get_by_label("Beginning of a text").fill("<i>once --")
    shown.get_by_role("button", name="Let it write").click()
    expect(shown.locator(".sample")).to_contain_text("<i>once --")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"prompt": "x" * 2001, "seed": 0}, "a prompt is a text of at most 2000 characters"),
        ({"prompt": "x", "seed": -1}, "a seed is a whole number from 0 on"),
        ({"prompt": "x", "seed": 0, "number": 1}, "it leaves its model at its end"),
        ({"prompt": "x", "seed": 0, "number": "0"}, "give sweep as a text and number as a whole number"),
    ],
)
def test_what_cannot_be_written_is_refused(page: View, given: dict[str, Any], said: str) -> None:
    page.open("trial/text-python/0?sweep=text-python")
    page.allow("status of 400")
    answer = page.page.evaluate(
        "async (body) => (await fetch('api/trial/write', {method: 'POST', body: JSON.stringify(body),"
        " headers: {'content-type': 'application/json'}})).text()",
        {"sweep": "text-python", "number": 0, **given},
    )
    assert said in answer


def test_agents_and_language_models_learn_nothing_from_each_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/protein.db"
    fill_store(url)
    store = open_store(url)
    for wanted, said in (
        ("pong", "the source sweep 'pong' trained pong, and this one trains text/python: nothing is learned between"),
        ("all", "no other sweep of the store has 2 scores in this space"),
    ):
        with pytest.raises(UsageError, match=said):
            plan.snapshot(store, spec(), wanted, None)
    store.close()
