"""Batches collected while an update runs, and by a copy of the network: the same numbers whenever it happens."""

import dataclasses
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from event_log import EventLog
from whole_runs import StopAfter, same

from protein.trainer.config import PolicyConfig, RunConfig, TrainConfig
from protein.trainer.environments import make
from protein.trainer.events import RunResult
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.machine.stopwatch import SECTIONS, Stopwatch
from protein.trainer.model.policy import Policy
from protein.trainer.optim.optimizer import flatten_
from protein.trainer.ppo import rollout as rollouts
from protein.trainer.ppo.loss import advantages_and_returns
from protein.trainer.ppo.overlap import Collector, Snapshot, moved
from protein.trainer.ppo.rollout import Batch, Rollout
from protein.trainer.ppo.update import PPO
from protein.trainer.run import run

CPU = torch.device("cpu")
SMALL: dict[str, dict[str, Any]] = {
    "env": {"num_envs": 16, "frame_skip": 64},
    "policy": {"hidden_size": 8},
    "train": {"total_timesteps": 16 * 32 * 6, "threads": 2, "device": "cpu", "horizon": 32, "minibatch_size": 128},
    "eval": {"episodes": 8, "num_envs": 4},
}


def small(*, policy: dict[str, Any] | None = None, **train: Any) -> RunConfig:
    return RunConfig.from_dict(SMALL | {"policy": SMALL["policy"] | (policy or {}), "train": SMALL["train"] | train})


def go(config: RunConfig, directory: Path, **options: Any) -> tuple[RunResult, dict[str, torch.Tensor]]:
    result = run(config, directory=directory, report=lambda _: None, **options)
    return result, dict(checkpoints.read(directory / checkpoints.FILE_NAME).tensors)


@pytest.mark.parametrize("recurrence", ["none", "lstm"])
def test_acting_with_a_copy_on_the_cpu_changes_nothing_there(recurrence: str, tmp_path: Path) -> None:
    policy = {"recurrence": recurrence}
    plain, theirs = go(small(policy=policy), tmp_path / "plain")
    copied, ours = go(small(policy=policy, cpu_inference=True), tmp_path / "copied")
    assert copied.score == plain.score and same(ours, theirs)


@pytest.mark.parametrize("options", [{}, {"cpu_inference": True}, {"train_fp16": True, "cpu_inference": True}])
def test_overlapping_repeats_and_survives_an_interruption(options: dict[str, Any], tmp_path: Path) -> None:
    """Bit for bit, although threads take turns as they like and an interruption changes what is begun when."""
    config = small(overlap=True, policy={"recurrence": "lstm"}, **options)
    straight, theirs = go(config, tmp_path / "straight")
    again, ours = go(config, tmp_path / "again")
    assert again.score == straight.score and same(ours, theirs)

    cut, _ = go(config, tmp_path / "cut", stop=StopAfter(3))
    assert cut.interrupted and 0 < cut.steps < straight.steps
    resumed, ours = go(config, tmp_path / "resumed", resume=tmp_path / "cut" / checkpoints.FILE_NAME)
    assert resumed.score == straight.score and resumed.metrics == straight.metrics and same(ours, theirs)


def test_checkpoints_on_the_way_change_nothing(tmp_path: Path) -> None:
    _, theirs = go(small(overlap=True, checkpoint_seconds=0.0), tmp_path / "none")
    _, ours = go(small(overlap=True, checkpoint_seconds=1e-9), tmp_path / "always")
    assert same(ours, theirs)


def test_overlapping_is_another_run_that_ends_as_any_other(tmp_path: Path) -> None:
    plain, theirs = go(small(), tmp_path / "plain")
    overlapped, ours = go(small(overlap=True), tmp_path / "overlapped")
    assert overlapped.steps == plain.steps
    assert not ours["policy/head.weight"].equal(theirs["policy/head.weight"])
    limited, _ = go(small(overlap=True, total_timesteps=10**9, max_seconds=0.1), tmp_path / "limited")
    assert not limited.interrupted and limited.score is not None


def test_sections_add_up_and_the_threads_time_is_not_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the CPU time of this thread: by the wall clock, other programs take time between two sections, too."""
    monkeypatch.setattr("protein.trainer.progress.time", SimpleNamespace(perf_counter=time.thread_time))
    monkeypatch.setattr("protein.trainer.machine.stopwatch.perf_counter", time.thread_time)
    stopwatch = Stopwatch(CPU)
    events = EventLog()
    run(small(overlap=True), directory=None, report=events.record, stopwatch=stopwatch)
    metrics = next(event["metrics"] for event in reversed(events) if event["event"] == "measurement")
    total = sum(metrics[f"{section}_seconds"] for section in SECTIONS)
    assert total == pytest.approx(events[-1]["elapsed_seconds"], rel=0.02)
    assert metrics["environment_seconds"] == 0.0, "that is the thread's"


class Parts:
    """A collector of pong and all that it is made of."""

    def __init__(self, *, overlap: bool) -> None:
        envs = make("pong", 4, seed=1, frame_skip=8)
        self.policy = Policy(envs.spec, PolicyConfig(hidden_size=8), generator=torch.Generator().manual_seed(3))
        self.weights = flatten_(self.policy)
        self.snapshot = Snapshot(self.policy, CPU)
        self.rollout = Rollout(
            [envs],
            self.snapshot.policy,
            horizon=8,
            gamma=0.9,
            device=CPU,
            generator=torch.Generator().manual_seed(4),
            stopwatch=Stopwatch(CPU),
            keep=2 if overlap else 1,
        )
        self.rollout.reset(2)
        self.collector = Collector(
            self.rollout,
            self.snapshot,
            self.weights,
            overlap=overlap,
            device=CPU,
            stopwatch=Stopwatch(CPU),
            prepare=lambda: None,
        )


def copy_of(batch: Batch) -> list[torch.Tensor]:
    return [batch.observations.clone(), batch.actions.clone(), batch.logprobs.clone(), batch.values.clone()]


def test_a_batch_stays_as_it_is_while_the_next_is_collected_with_older_weights() -> None:
    parts = Parts(overlap=True)
    try:
        first, _ = parts.collector.take(8)
        before = copy_of(first)
        parts.collector.begin(8)
        parts.weights.mul_(3.0)  # an update; the batch that was begun must not see it
        second, _ = parts.collector.take(8)
        assert all(a.equal(b) for a, b in zip(copy_of(first), before, strict=True))
        assert parts.snapshot.weights.equal(parts.weights), "the next one will"
    finally:
        parts.collector.close()
    others = Parts(overlap=True)
    try:
        others.collector.take(8)
        late, _ = others.collector.take(8)  # begun only when it is wanted, and the same
        assert all(a.equal(b) for a, b in zip(copy_of(second), copy_of(late), strict=True))
        observed = parts.snapshot.policy(first.observations)
        assert observed[0].shape[1] == 32
    finally:
        others.collector.close()


def test_in_turn_each_batch_is_that_of_the_newest_weights() -> None:
    parts = Parts(overlap=False)
    parts.collector.take(8)
    parts.weights.zero_()
    batch, _ = parts.collector.take(8)
    assert batch.values.abs().max() == 0.0


def test_what_a_thread_raises_is_raised_where_its_batch_is_taken() -> None:
    parts = Parts(overlap=True)
    try:
        parts.collector.begin(9)  # more than the horizon
        with pytest.raises(IndexError):
            parts.collector.take(8)
        assert len(parts.collector.take(8)[0]) == 32, "and the next one is another"
    finally:
        parts.collector.close()


def test_the_ratios_of_an_older_batch_are_those_of_the_weights_now() -> None:
    """With a batch of another policy's, the first advantages are V-trace's: with ratios near 0 they all but vanish."""
    parts = Parts(overlap=False)
    batch, _ = parts.collector.take(8)
    config = TrainConfig(horizon=8, minibatch_size=16, overlap=True, device="cpu")
    ppo = PPO(parts.policy, config, device=CPU, generator=torch.Generator().manual_seed(0), stopwatch=Stopwatch(CPU))

    def ratios() -> torch.Tensor:
        return ppo.logprobs(batch, 3).sub(batch.logprobs).exp()

    assert ratios().sub(1).abs().max() < 1e-5
    with torch.no_grad():
        parts.policy.head.weight.mul_(50.0)
    output, _ = parts.policy(batch.observations)
    logp = torch.log_softmax(output[:3], dim=0).gather(0, batch.actions.flatten(1).long())[0]
    expected = (logp.view(8, 4) - batch.logprobs).exp()
    assert (expected - 1).abs().max() > 0.05
    torch.testing.assert_close(ratios(), expected, rtol=1e-4, atol=1e-5)
    advantages, _ = advantages_and_returns(batch, torch.full_like(batch.logprobs, 1e-6), config)
    plain, _ = advantages_and_returns(batch, torch.ones_like(batch.logprobs), config)
    assert not torch.allclose(advantages, plain)


def test_log_probabilities_of_another_device_are_computed_again() -> None:
    """As where the network acts on a CPU and trains on a GPU, whose products round differently."""

    def weights_after(*, off: float, recompute: bool) -> torch.Tensor:
        parts = Parts(overlap=False)
        batch, _ = parts.collector.take(8)
        batch = dataclasses.replace(batch, logprobs=batch.logprobs + off)
        config = TrainConfig(horizon=8, minibatch_size=16, update_epochs=2, device="cpu")
        ppo = PPO(
            parts.policy,
            config,
            device=CPU,
            generator=torch.Generator().manual_seed(0),
            stopwatch=Stopwatch(CPU),
            recompute_logprobs=recompute,
        )
        ppo.update(batch, 0.5)
        return ppo.weights

    exact = weights_after(off=0.0, recompute=False)
    assert not torch.allclose(weights_after(off=0.1, recompute=False), exact, atol=1e-5)
    torch.testing.assert_close(weights_after(off=0.1, recompute=True), exact)


@pytest.mark.parametrize("pin", [False, True])
def test_what_a_gpu_is_sent_lies_in_pinned_memory(pin: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a network on the CPU. Only a GPU's driver pins memory, so this looks at what is asked for."""
    pinned: list[torch.Tensor] = []

    def zeros(*shape: int, dtype: torch.dtype = torch.float32, pin: bool) -> torch.Tensor:
        made = torch.zeros(*shape, dtype=dtype)
        if pin:
            pinned.append(made)
        return made

    monkeypatch.setattr(rollouts, "host_zeros", zeros)
    envs = make("pong", 4, seed=1, frame_skip=8)
    rollout = Rollout(
        [envs],
        Policy(envs.spec, PolicyConfig(hidden_size=8), generator=torch.Generator().manual_seed(3)),
        horizon=8,
        gamma=0.9,
        device=CPU,
        generator=torch.Generator().manual_seed(4),
        stopwatch=Stopwatch(CPU),
        pin=pin,
    )
    rollout.reset(2)
    batch = rollout.collect(8)
    places = {tensor.untyped_storage().data_ptr() for tensor in pinned}
    found = {f.name: getattr(batch, f.name) for f in dataclasses.fields(batch)}
    others = [name for name, t in found.items() if t is not None and t.untyped_storage().data_ptr() not in places]
    assert others == ([] if pin else [name for name, tensor in found.items() if tensor is not None])
    assert moved(batch, torch.device("cpu")) is batch and moved(batch, torch.device("meta")).rewards.is_meta
