"""Recorded updates: with the stand-in for CUDA graphs they are the same, bit for bit, as those computed as usual."""

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from event_log import EventLog
from ppo_runs import BATCH, small
from training_parts import POLICIES, make_policy, make_rollout, make_spec, scripted
from updates import make_ppo

from protein.trainer.errors import DivergedError
from protein.trainer.kernels import by_torch
from protein.trainer.machine.graphs import Launches, standing_in
from protein.trainer.model.policy import Policy
from protein.trainer.ppo.rollout import Batch
from protein.trainer.ppo.update import PPO
from protein.trainer.run import run

STEPS, AGENTS = 5, 12
SPECS = {
    "one": make_spec(),
    "several": make_spec(action_sizes=(3, 2, 4)),
    "continuous": make_spec(continuous_actions=2),
}


def batches(policy: Policy, actions: str, number: int, steps: int = STEPS) -> list[Batch]:
    """What a rollout of its own weights collects, so that all updates read the same."""
    rollout = make_rollout(scripted(number * steps, AGENTS, SPECS[actions]), policy, horizon=steps)
    rollout.reset(0)
    found = []
    for _ in range(number):
        batch = rollout.collect(steps)
        found.append(dataclasses.replace(batch, **{name: t.clone() for name, t in batch.tensors().items()}))
    return found


def record(ppo: PPO, *, idles: bool = False) -> None:
    """Records updates of whole iterations; all specs have observations of the same size."""
    ppo.record(SPECS["one"].observation_size, AGENTS, STEPS, dtype=torch.float32, idles=idles)


def updated(
    recorded: bool, policy: dict[str, Any], actions: str = "one", idle: bool = False, **train: Any
) -> tuple[PPO, list[dict[str, float]]]:
    """Returns the PPO after four updates along the run, the third of them shorter, and their figures."""
    network = make_policy(SPECS[actions], **policy)
    given = batches(network, actions, 3)
    given.insert(2, batches(network, actions, 1, steps=3)[0])
    with standing_in() if recorded else by_torch():
        usual = {"minibatch_size": 25, "update_epochs": 2, "graphs": "on" if recorded else "off"}
        ppo = make_ppo(network, **(usual | train))
        record(ppo, idles=idle)
        figures = []
        for number, batch in enumerate(given):
            if idle and number != 1:  # in the second batch all play
                playing = torch.rand(batch.rewards.shape, generator=torch.Generator().manual_seed(number)) < 0.7
                batch = dataclasses.replace(batch, playing=playing)
            figures.append(ppo.update(batch, number / 4))
    return ppo, figures


OPTIONS: dict[str, dict[str, Any]] = {
    "mlp": {},
    **{name: {"policy": POLICIES[name]} for name in ("cnn", "lstm", "mingru", "bins", "separate", "tanh")},
    "several actions": {"actions": "several"},
    "continuous actions": {"actions": "continuous"},
    "agents that idle": {"idle": True},
    "idle, with a memory": {"idle": True, "policy": POLICIES["mingru"]},
    "parts": {"accumulation_steps": 3},
    "the whole batch": {"minibatch_size": 60},
    "advantages as they are": {"normalize_advantages": False},
    "muon": {"optimizer": "muon", "weight_decay": 0.1, "policy": {"num_layers": 3}},
    "muon, with a memory": {"optimizer": "muon", "policy": POLICIES["lstm"]},
    "weight decay": {"weight_decay": 0.3},
    "a falling step size": {"lr_schedule": "linear", "warmup_fraction": 0.3},
    "an entropy bonus along a line": {"ent_coef": 0.1, "ent_coef_final": 0.0},
    "one that adapts": {"target_entropy": 0.2, "ent_coef": 0.3, "actions": "continuous"},
    "v-trace": {"overlap": True, "policy": POLICIES["mingru"]},
    "target kl": {"target_kl": 1e-5, "learning_rate": 0.01},
    "bf16": {"precision": "bf16"},
    "bf16, with a memory": {"precision": "bf16", "policy": POLICIES["lstm"]},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_a_recorded_update_is_the_usual_one_bit_for_bit(option: str) -> None:
    settings = {"policy": {}} | OPTIONS[option]
    usual, expected = updated(False, **settings)
    ppo, found = updated(True, **settings)
    assert not ppo.recorder.reason and not ppo.recorder.failures and ppo._recorded
    assert found == expected
    assert torch.equal(ppo.weights, usual.weights)
    ours, theirs = ppo.state(), usual.state()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_replays_read_the_step_size_the_step_count_and_the_weight_of_the_entropy_of_their_update() -> None:
    """Each of them changes what a replay does; frozen at the recording, nothing would."""
    with standing_in():
        network = make_policy(SPECS["one"])
        (batch,) = batches(network, "one", 1)
        once: dict[str, Any] = {"minibatch_size": 60, "update_epochs": 1, "lr_schedule": "linear", "adam_eps": 1e-12}
        ppo = make_ppo(network, graphs="on", **once)
        record(ppo)
        start, state = ppo.weights.clone(), {name: value.clone() for name, value in ppo.state().items()}

        def moved(progress: float, count: float = 0.0, weight: float | None = None) -> torch.Tensor:
            """The step that an update from the start takes, by replays alone."""
            ppo.weights.copy_(start)
            ppo.set_state(state)
            ppo.optimizer.moments()["optimizer.0.0.step"].fill_(count)
            if weight is not None:
                ppo._entropy.coefficient = lambda progress: weight  # type: ignore[method-assign]
            with Launches() as launches:
                ppo.update(batch, progress)
            assert launches.by_name["graph"] == 3  # advantages, one minibatch, figures
            return ppo.weights - start

        at_first, later = moved(0.0, weight=0.01), moved(0.5, weight=0.01)
        torch.testing.assert_close(later, at_first / 2, rtol=1e-3, atol=1e-7)
        # The moments of one gradient, taken for those of ten.
        share = 0.1 / (1 - 0.9**10) * ((1 - 0.999**10) / 0.001) ** 0.5
        torch.testing.assert_close(moved(0.0, count=9.0, weight=0.01), share * at_first, rtol=1e-3, atol=1e-7)
        assert not torch.allclose(moved(0.0, weight=3.0), at_first, rtol=0.1)


@pytest.mark.parametrize("first", ["recorded", "usual"])
def test_a_run_goes_on_across_both(first: str) -> None:
    """A state that one of them has left continues the other, to the same weights."""
    finals = []
    for second in ("recorded", "usual"):
        ppo, _ = updated(first == "recorded", {}, lr_schedule="linear")
        network = make_policy(SPECS["one"])
        (batch,) = batches(network, "one", 1)
        with standing_in() if second == "recorded" else by_torch():
            other = make_ppo(
                network,
                graphs="on" if second == "recorded" else "off",
                minibatch_size=25,
                update_epochs=2,
                lr_schedule="linear",
            )
            record(other)
            other.weights.copy_(ppo.weights)
            other.set_state({name: value.clone() for name, value in ppo.state().items()})
            other.update(batch, 0.8)
        finals.append(other.weights)
    assert torch.equal(*finals) and not torch.equal(finals[0], ppo.weights)


def test_an_update_that_diverges_is_noticed_at_once_and_time_ends_it_between_minibatches() -> None:
    with standing_in():
        network = make_policy(SPECS["one"])
        good, bad = batches(network, "one", 2)
        bad.rewards[2, 3] = math.nan
        ppo = make_ppo(network, graphs="on", minibatch_size=25, update_epochs=2)
        record(ppo)
        ppo.update(good, 0.0)
        ticks = iter([False, False, True])
        with Launches() as launches:
            figures = ppo.update(good, 0.1, lambda: next(ticks, True))
        assert launches.by_name["graph"] == 2 + 2 and figures.keys() == {"explained_variance"}
        with pytest.raises(DivergedError, match="not finite"):
            ppo.update(bad, 0.2)


@pytest.mark.parametrize("policy", [{}, POLICIES["cnn"], POLICIES["mingru"], POLICIES["lstm"]])
def test_the_host_launches_two_things_a_minibatch(policy: dict[str, Any]) -> None:
    with standing_in():
        network = make_policy(SPECS["one"], **policy)
        (batch,) = batches(network, "one", 1)
        ppo = make_ppo(network, graphs="on", minibatch_size=10, update_epochs=4)
        record(ppo)
        with Launches() as launches:
            ppo.update(batch, 0.0)
    assert launches.by_name["graph"] == 2 + 4 * 6
    assert launches.number <= 2 * 4 * 6 + 30  # the batch and the orders are copied, and the figures are read


def test_memory_that_does_not_suffice_is_one_line_and_the_update_is_computed_as_usual(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected, _ = updated(False, {})
    steps = itertools.count()
    usual = PPO._step

    def step(self: PPO, *given: Any, **settings: Any) -> Any:
        if next(steps) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has ...")
        return usual(self, *given, **settings)

    monkeypatch.setattr(PPO, "_step", step)
    ppo, _ = updated(True, {}, graphs="auto")
    assert torch.equal(ppo.weights, expected.weights)
    assert [record.getMessage() for record in caplog.records] == ppo.recorder.failures
    (line,) = ppo.recorder.failures
    assert line == (
        "cannot record a minibatch's step as a graph, going on without it: "
        "CUDA out of memory. Tried to allocate 2.00 GiB."
    )


@pytest.mark.parametrize(
    ("train", "told"),
    [
        ({"total_timesteps": BATCH - 16}, "acting; not update: no whole iteration is left"),
        ({"train_fp16": True}, "acting; not update: fp16 decides on the host whether a step is taken"),
    ],
)
def test_the_start_says_why_an_update_is_not_recorded(train: dict[str, Any], told: str) -> None:
    events = EventLog()
    with standing_in():
        run(small(train={"total_timesteps": BATCH} | train), directory=None, report=events.record)
    assert events[0]["graphs"] == told
