"""Acting in one launch a step, by the stand-in: the numbers are those of the usual way, for every kind of policy."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from event_log import EventLog
from ppo_runs import small
from torch import nn
from training_parts import POLICIES, make_policy, make_rollout, make_spec, scripted
from whole_runs import StopAfter, go, same, tensors

from protein.trainer.environments import make
from protein.trainer.errors import TrainerError
from protein.trainer.kernels import by_torch
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.machine.distributed import ALONE
from protein.trainer.machine.graphs import Launches, Recorder, StandIn, standing_in
from protein.trainer.model.policy import Policy
from protein.trainer.normalise import Conditioning, Moments, Normalizer, RewardScaler
from protein.trainer.ppo.rollout import Batch, Rollout
from protein.trainer.run import run

CPU = torch.device("cpu")
ACTIONS: dict[str, dict[str, Any]] = {
    "one": {"action_sizes": (4,)},
    "several": {"action_sizes": (3, 2)},
    "continuous": {"continuous_actions": 2},
}
LENGTHS = (6, 6, 3, 6)  # of the rollouts: one is cut short
Made = Callable[[], Rollout]


def collected(made: Made, how: str, *, normalises: bool = False) -> list[Batch]:
    """Returns copies of what the usual way (`host`), the device's way (`off`), or its recording (`auto`) collect."""
    with by_torch() if how == "host" else standing_in():
        rollout = made()
        rollout.reset(0)
        if normalises:
            features, agents = rollout._groups[0].envs.spec.observation_size, rollout.num_agents
            normalizer = Normalizer(
                Moments.of(torch.randn(9, features, generator=torch.Generator().manual_seed(1))), CPU
            )
            rollout.condition(Conditioning(normalizer, RewardScaler(agents, gamma=0.9, scales=True, clip=1.0)))
        if how == "auto":
            recorder = Recorder(CPU)
            rollout.record(recorder)
            assert not recorder.reason and not recorder.failures
        batches = []
        for steps in LENGTHS:
            batch = rollout.settle(rollout.collect(steps), ALONE)
            batches.append(dataclasses.replace(batch, **{name: t.clone() for name, t in batch.tensors().items()}))
        return batches


def assert_equal(ones: Sequence[Batch], others: Sequence[Batch]) -> None:
    for one, other in zip(ones, others, strict=True):
        ours, theirs = one.tensors(), other.tensors()
        assert ours.keys() == theirs.keys()
        assert not [name for name in ours if not ours[name].equal(theirs[name])]


@pytest.mark.parametrize(("halves", "normalises"), [(False, False), (True, True)])
@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("kind", POLICIES)
def test_recorded_equals_unrecorded_equals_the_usual_way(
    kind: str, actions: str, halves: bool, normalises: bool
) -> None:
    """With both kinds of ends in all steps, the last ones, too."""
    spec = make_spec(**ACTIONS[actions])
    policy = make_policy(spec, **POLICIES[kind])

    def made() -> Rollout:
        return make_rollout(scripted(sum(LENGTHS), 6, spec, halves=halves), policy, horizon=6)

    usual, off, recorded = (collected(made, how, normalises=normalises) for how in ("host", "off", "auto"))
    assert_equal(recorded, off)
    for one, other in zip(off, usual, strict=True):
        ours, theirs = one.tensors(), other.tensors()
        # On a device the final observations of a whole rollout are valued at once, and products of other sizes round
        # differently.
        torch.testing.assert_close(ours.pop("rewards"), theirs.pop("rewards"), rtol=1e-5, atol=1e-6)
        assert not [name for name in theirs if not ours[name].equal(theirs[name])]


def test_idle_agents_and_bytes_and_half_precision_are_the_same() -> None:
    def idle() -> Rollout:
        envs = make("python:idle_agents:Pairs", 3, seed=0)
        return make_rollout([envs], make_policy(envs.spec), horizon=6)

    spec = dataclasses.replace(make_spec(), observation_dtype="uint8", observation_high=255.0)
    policy = make_policy(spec, recurrence="lstm")

    def halves_of_bytes() -> Rollout:
        return make_rollout(scripted(sum(LENGTHS), 6, spec, halves=True), policy, horizon=6, precision="bf16")

    for made in (idle, halves_of_bytes):
        assert_equal(collected(made, "auto"), collected(made, "off"))


def launches(policy: Policy, setting: Any, *, halves: bool = False, steps: int = 16) -> int:
    """Returns what the host launches for one rollout without truncations."""
    spec = make_spec()
    with standing_in():
        rollout = make_rollout(scripted(3 * steps, 6, spec, halves=halves, ends=0.0), policy, horizon=steps)
        rollout.reset(0)
        rollout.record(Recorder(CPU, setting))
        rollout.collect(steps)
        with Launches() as counted:
            rollout.collect(steps)
    return counted.number


@pytest.mark.parametrize("kind", POLICIES)
def test_a_step_is_one_launch(kind: str) -> None:
    policy = make_policy(make_spec(), **POLICIES[kind])
    recorded = launches(policy, "auto")
    assert launches(policy, "auto", steps=32) - recorded == 16
    assert launches(policy, "auto", halves=True) <= recorded + 17 + 2  # two groups, each with its state
    assert launches(policy, "off") > 10 * recorded


def test_rare_truncations_cost_few_launches() -> None:
    """However many steps have some, all final observations are valued together."""
    spec = make_spec()
    with standing_in():
        rollout = make_rollout(scripted(64, 6, spec, ends=0.3), make_policy(spec), horizon=32)
        rollout.reset(0)
        rollout.record(Recorder(CPU))
        with Launches() as counted:
            rollout.collect(32)
    assert counted.number < 33 + 30


class Reads(nn.Module):
    """A network that asks the host for a number in each pass."""

    def __init__(self, observation_shape: Any, action_outputs: int, value_outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(observation_shape[0], action_outputs + value_outputs)
        self.actions = action_outputs

    def forward(self, observations: torch.Tensor) -> Any:
        output = self.layer(observations)
        if float(output.detach().sum()) == 1e9:
            output = output * 2
        return output[:, : self.actions], output[:, self.actions :]


class Plain(Reads):
    """The same network without that question."""

    def forward(self, observations: torch.Tensor) -> Any:
        output = self.layer(observations)
        return output[:, : self.actions], output[:, self.actions :]


def whole(folder: Path, how: str, config: Any, **options: Any) -> tuple[dict[str, torch.Tensor], Any]:
    with standing_in():
        _, events = go(
            dataclasses.replace(config, train=dataclasses.replace(config.train, graphs=how)), folder, **options
        )
    return tensors(folder), events


def test_a_network_of_the_users_own_is_recorded_where_it_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = {}
    for name in ("Reads", "Plain"):
        config = small(policy={"module": f"{__name__}:{name}"}, train={"total_timesteps": 1500})
        found[name], events = whole(tmp_path / name, "auto", config)
        if name == "Reads":
            said = "acting as a graph, going on without it: aten._local_scalar_dense.default hands a result to the host"
            assert said in events[0]["graphs"] and events[0]["graphs"].startswith("none; not acting: cannot record")
            assert [said in record.getMessage() for record in caplog.records].count(True) == 1
        else:
            assert events[0]["graphs"] == "acting, update"
    assert same(found["Reads"], found["Plain"])


@pytest.mark.parametrize(("first", "then"), [("auto", "off"), ("off", "auto")])
def test_a_checkpoint_resumes_whether_recorded_or_not(first: str, then: str, tmp_path: Path) -> None:
    sections: dict[str, Any] = {"policy": {"recurrence": "mingru"}, "env": {"name": "pendulum", "double_buffer": True}}
    train = {"normalize_observations": "on", "reward_scaling": "return", "total_timesteps": 2500}
    config = small(**sections, train=train)
    straight, _ = whole(tmp_path / "straight", "off", config)
    _, events = whole(tmp_path / "cut", first, config, stop=StopAfter(4))
    assert 0 < events[-1]["steps"] < 2500
    resumed, _ = whole(tmp_path / "resumed", then, config, resume=tmp_path / "cut" / checkpoints.FILE_NAME)
    assert same(resumed, straight)


def test_with_overlap_both_sets_of_buffers_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small(train={"overlap": True, "total_timesteps": 2500})
    usual, _ = whole(tmp_path / "usual", "off", config)
    made: list[str] = []
    record = Recorder.record

    def noted(recorder: Recorder, what: str, *given: Any, **options: Any) -> Any:
        made.append(what)
        return record(recorder, what, *given, **options)

    monkeypatch.setattr(Recorder, "record", noted)
    recorded, _ = whole(tmp_path / "recorded", "auto", config)
    assert same(recorded, usual) and made.count("acting") == 2


def test_too_little_memory_for_the_second_group_forgets_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_spec()
    policy = make_policy(spec, recurrence="lstm")
    record, left = StandIn.__init__, 1

    def fails_later(*given: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore")
        record(*given)

    def made() -> Rollout:
        return make_rollout(scripted(sum(LENGTHS), 6, spec, halves=True), policy, horizon=6)

    usual = collected(made, "off")
    monkeypatch.setattr(StandIn, "__init__", fails_later)
    with standing_in():
        recorder = Recorder(CPU)

    def failing() -> Rollout:
        rollout = made()
        rollout.record(recorder)
        assert all(group.stage is not None and not group.stage._graphs for group in rollout._groups)
        return rollout

    assert_equal(collected(failing, "off"), usual)
    assert recorder.failures == [
        "cannot record acting as a graph, going on without it: CUDA out of memory. Tried to allocate 2.00 GiB."
    ]


def test_a_device_that_fails_ends_the_run_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(graph: StandIn) -> None:
        raise torch.AcceleratorError("CUDA error: unspecified launch failure\nCUDA kernel errors might be ...")

    monkeypatch.setattr(StandIn, "replay", fail)
    events = EventLog()
    with standing_in(), pytest.raises(TrainerError, match=r"^the device failed, train.device 'cpu': CUDA error: unspe"):
        run(small(), directory=None, report=events.record)
    assert events[-1]["event"] == "failed" and "\n" not in events[-1]["message"]
