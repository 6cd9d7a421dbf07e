"""A network of the user's own: its contract is tried out at once, and it trains, resumes and plays like ours."""

from pathlib import Path
from typing import Any

import pytest
import torch
from flawed_networks import Flawed, flaw
from torch import nn
from training_parts import make_spec
from updates import collected
from whole_runs import StopAfter, go, same, tensors

from protein.trainer.config import PolicyConfig, RunConfig
from protein.trainer.errors import CheckpointError, ConfigError
from protein.trainer.evaluate import evaluate
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.model.policy import Policy
from protein.trainer.watch import Player

SMALL: dict[str, dict[str, Any]] = {
    "env": {"name": "pong", "num_envs": 8, "frame_skip": 40},
    "policy": {"hidden_size": 8, "module": "own_policy:TwoTowers"},
    "train": {"total_timesteps": 8 * 16 * 4, "threads": 1, "device": "cpu", "horizon": 16, "minibatch_size": 64},
    "eval": {"episodes": 8, "num_envs": 8},
}


def small(env: dict[str, Any] | None = None, policy: dict[str, Any] | None = None, **train: Any) -> RunConfig:
    sections = {"env": env or {}, "policy": policy or {}, "train": train, "eval": {}}
    return RunConfig.from_dict({name: SMALL[name] | own for name, own in sections.items()})


def make(module: str, spec: Any = None, seed: int = 0, **policy: Any) -> Policy:
    config = PolicyConfig(hidden_size=8, module=module, **policy)
    return Policy(spec or make_spec((24,)), config, generator=torch.Generator().manual_seed(seed))


class WantsMore(nn.Module):
    def __init__(self, observation_shap: tuple[int, ...]) -> None:
        super().__init__()


class NoWeights(nn.Module):
    def forward(self, observations: torch.Tensor) -> Any:
        return observations[:, :4], observations[:, 0]


class Falls(Flawed):
    def forward(self, observations: torch.Tensor, *state: torch.Tensor) -> Any:
        return observations @ self.action.weight


class Rescales(Flawed):
    def forward(self, observations: torch.Tensor, *state: torch.Tensor) -> Any:
        return super().forward(observations.sub_(1e-5), *state)


class Coarse(Flawed):
    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.size = keywords["size"]


class PassesOn(Flawed):
    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.given = keywords


class OpenEnded(nn.Module):
    def __init__(self, **keywords: Any) -> None:
        super().__init__()
        self.given = keywords
        self.layer = nn.LazyLinear(keywords["action_outputs"] + keywords["value_outputs"])

    def forward(self, observations: torch.Tensor) -> Any:
        return self.layer(observations).split([4, 1], dim=1)


class Doubled(Flawed):
    def __init__(self, observation_shape: tuple[int, ...], action_outputs: int, value_outputs: int) -> None:
        super().__init__(observation_shape, action_outputs, value_outputs)
        self.double()


def not_a_module(action_outputs: int) -> int:
    return action_outputs


Wide = flaw(lambda actions, values: (torch.cat([actions, actions[:, :1]], dim=1), values))
TwoValues = flaw(lambda actions, values: (actions, torch.cat([values, values], dim=1)))
ActionsAlone = flaw(lambda actions, values: actions)
Mixing = flaw(lambda actions, values: (actions - actions.mean(dim=0), values))
Noisy = flaw(lambda actions, values: (actions, values + torch.rand(())))
Infinite = flaw(lambda actions, values: (actions / 0.0, values))
ForgetsItsState = flaw(lambda actions, values, state: (actions, values), state_size=5)
Decays = flaw(lambda actions, values, state: (actions, values, state.mul_(0.5)), state_size=5)
WrongState = flaw(lambda actions, values, state: (actions, values, state[:, :4]), state_size=5)
OddState = flaw(lambda actions, values: (actions, values), state_size="5")
Flat = flaw(lambda actions, values: (actions, values[:, 0]))
WithDeviations = flaw(lambda actions, values: (torch.cat([actions, actions - 1], dim=1), values))

HERE = __name__


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("own_policy", "policy.module must be my_file:MyNet or my_package.my_file:MyNet, got 'own_policy'"),
        ("no_such_file:Net", "cannot load policy.module 'no_such_file:Net': ModuleNotFoundError: No module named"),
        ("own_policy:TwoTower", "module own_policy has no class or function 'TwoTower'; did you mean 'TwoTowers'?"),
        (f"{HERE}:WantsMore", "asks for 'observation_shap', which is not offered; did you mean 'observation_shape'?"),
        (f"{HERE}:not_a_module", "must be a torch.nn.Module, it made a int"),
        (f"{HERE}:NoWeights", "has no weights to train"),
        (f"{HERE}:Falls", "failed on float32 observations of shape (3, 24): RuntimeError: mat1 and mat2 shapes"),
        (
            f"{HERE}:Coarse",
            "could not be built from (observation_shape=(24,), action_outputs=4, value_outputs=1): KeyError",
        ),
        (f"{HERE}:Doubled", "must have weights of float32, it has some of torch.float64"),
        (
            f"{HERE}:Wide",
            "must return actions of shape (3, 4) (a logit for each choice of 4) for 3 samples of shape (24,), got",
        ),
        (
            f"{HERE}:TwoValues",
            "must return values of shape (3, 1) or (3,) (the value) for 3 samples of shape (24,), got",
        ),
        (f"{HERE}:ActionsAlone", "must return (actions, values), tensors, got (Tensor)"),
        (f"{HERE}:Mixing", "must map each sample by itself, but its actions change with the other samples"),
        (f"{HERE}:Noisy", "must map each sample by itself, but its values change with the other samples or from call"),
        (f"{HERE}:Rescales", "must not change its observations in place: write x = x * 2 in place of x *= 2"),
        (f"{HERE}:Decays", "must not change its state in place"),
        (f"{HERE}:Infinite", "must return actions that are finite floats"),
        (f"{HERE}:ForgetsItsState", "must return (actions, values, state), tensors, got (Tensor, Tensor)"),
        (
            f"{HERE}:WrongState",
            "must return a state of shape (3, 5) (state_size) for 3 samples of shape (24,), got (3, 4)",
        ),
        (f"{HERE}:OddState", "must have a state_size, an int of 0 or more, got '5'"),
    ],
)
def test_what_does_not_keep_the_contract_is_refused_with_what_was_wanted_and_given(module: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(module)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_run_with_a_wrong_network_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must return actions of shape"):
        go(small(policy={"module": f"{HERE}:Wide"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=r"train\.optimizer must be adamw with policy\.module, got muon"):
        small(optimizer="muon")


@pytest.mark.parametrize("module", ["own_policy:Remembers", "own_policy:TwoTowers", f"{HERE}:Flat"])
def test_segments_are_computed_as_the_module_computes_them_step_by_step(module: str) -> None:
    """Also across episodes that end within them, where the memory begins at zero."""
    policy = make(module)
    assert policy.own is not None
    observations = torch.randn(5, 3, 24)
    resets = torch.rand(5, 3) < 0.4
    state: torch.Tensor | None = torch.randn(3, policy.state_size) if policy.state_size else None
    output, after = policy(observations, state, resets)
    columns = []
    for t in range(5):
        if state is None:
            actions, values = policy.own.module(observations[t])
        else:
            state = torch.where(resets[t][:, None], 0.0, state)
            actions, values, state = policy.own.module(observations[t], state)
        columns.append(torch.cat([actions, values.reshape(3, -1)], dim=1).t())
    torch.testing.assert_close(output, torch.cat(columns, dim=1))
    if state is not None:
        torch.testing.assert_close(after, state)


def test_the_gradient_is_that_of_automatic_differentiation_and_reaches_every_weight() -> None:
    policy = make("own_policy:Remembers", make_spec())
    batch = collected(policy)
    by_output = torch.randn(policy.rows, len(batch))
    _, backward = policy.vjp(batch.observations, batch.state, batch.resets)
    backward(by_output)
    found = [weight.grad.clone() for weight in policy.parameters() if weight.grad is not None]
    policy.zero_grad()
    again, _ = policy(batch.observations, batch.state, batch.resets)
    (again * by_output).sum().backward()
    expected = [weight.grad for weight in policy.parameters() if weight.grad is not None]
    assert len(found) == len(list(policy.parameters())) and all(gradient.abs().sum() > 0 for gradient in found)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_continuous_actions_with_deviations_of_their_own_or_beside_the_network() -> None:
    spec = make_spec((24,), continuous_actions=2)
    beside, own = make(f"{HERE}:Flat", spec), make(f"{HERE}:WithDeviations", spec)
    assert beside.log_std is not None and own.log_std is None
    observations = torch.randn(1, 6, 24)
    for policy in (beside, own):
        output, _ = policy(observations)
        assert output.shape == (5, 6)
    torch.testing.assert_close(output[2:4], output[:2] - 1)
    deviations, _ = beside(observations)
    assert (deviations[2:4] == 0).all()


def test_a_constructor_of_any_names_is_given_all_that_is_offered_or_what_its_base_takes() -> None:
    everything = {
        "observation_shape": (24,),
        "action_outputs": 4,
        "value_outputs": 1,
        "action_sizes": (4,),
        "continuous_actions": 0,
        "hidden_size": 8,
        "num_layers": 2,
    }
    all_of_it, passed_on = make(f"{HERE}:OpenEnded").own, make(f"{HERE}:PassesOn").own
    assert all_of_it is not None and passed_on is not None
    assert all_of_it.module.given == everything
    assert passed_on.module.given == {name: everything[name] for name in list(everything)[:3]}


def test_layers_that_take_their_sizes_from_the_first_call_follow_the_seed() -> None:
    one, again = (make(f"{HERE}:OpenEnded", seed=1) for _ in range(2))
    weights = [nn.utils.parameters_to_vector(policy.parameters()) for policy in (one, again)]
    assert weights[0].equal(weights[1])


def test_the_weights_follow_the_seed_and_leave_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, again, other = (make("own_policy:TwoTowers", seed=seed) for seed in (1, 1, 2))
    assert torch.get_rng_state().equal(before)
    weights = [nn.utils.parameters_to_vector(policy.parameters()) for policy in (one, again, other)]
    assert weights[0].equal(weights[1]) and not weights[0].equal(weights[2])


@pytest.mark.parametrize("module", ["own_policy:TwoTowers", "own_policy:Remembers"])
def test_it_trains_resumes_bit_for_bit_evaluates_and_is_watched(module: str, tmp_path: Path) -> None:
    extra: dict[str, Any] = {"overlap": True} if module.endswith("Remembers") else {"normalize_observations": "on"}
    config = small(policy={"module": module, "value_bins": 7}, **extra)
    straight, _ = go(config, tmp_path / "straight")
    cut, _ = go(config, tmp_path / "cut", stop=StopAfter(2))
    assert cut.interrupted and 0 < cut.steps < straight.steps
    path = tmp_path / "cut" / checkpoints.FILE_NAME
    resumed, _ = go(config, tmp_path / "cut", resume=path)
    assert resumed.score == straight.score
    assert same(tensors(tmp_path / "cut"), tensors(tmp_path / "straight"))
    played = evaluate(path, env="pong", episodes=1, num_envs=1, seed=3, threads=1)
    player = Player(path, env="pong", episodes=1, seed=3)
    for _ in player.scenes():
        pass
    assert player.scores == list(played.scores)
    with pytest.raises(CheckpointError, match="use the network's settings that it was trained with"):
        go(small(policy={"module": module, "value_bins": 9}, **extra), resume=path)


class Frozen(Flawed):
    def __init__(self, observation_shape: tuple[int, ...], action_outputs: int, value_outputs: int) -> None:
        super().__init__(observation_shape, action_outputs, value_outputs)
        self.seen = nn.Linear(observation_shape[0], observation_shape[0]).requires_grad_(False)

    def forward(self, observations: torch.Tensor, *state: torch.Tensor) -> Any:
        return super().forward(self.seen(observations))


class Gated(Flawed):
    """A GRU, so that the same weights are used in every step of a segment."""

    state_size = 24

    def __init__(self, observation_shape: tuple[int, ...], action_outputs: int, value_outputs: int) -> None:
        super().__init__((self.state_size,), action_outputs, value_outputs)
        self.memory = nn.GRUCell(observation_shape[0], self.state_size)

    def forward(self, observations: torch.Tensor, *state: torch.Tensor) -> Any:
        return super().forward(after := self.memory(observations, *state), after)


class Interrupted(Gated):
    """In the middle of a segment something else leaves its autocast, as the thread that collects does."""

    calls = 0

    def forward(self, observations: torch.Tensor, *state: torch.Tensor) -> Any:
        self.calls += 1
        if self.calls % 3 == 0 and torch.is_grad_enabled():
            torch.clear_autocast_cache()
        return super().forward(observations, *state)


def test_with_overlap_the_other_thread_does_not_change_how_gradients_round(tmp_path: Path) -> None:
    for module in ("Gated", "Interrupted"):
        config = small(policy={"module": f"{HERE}:{module}"}, precision="bf16", overlap=True)
        go(config, tmp_path / module)
    found, interrupted = tensors(tmp_path / "Gated"), tensors(tmp_path / "Interrupted")
    assert same(found, interrupted)


def test_weights_that_are_not_trained_do_not_decay(tmp_path: Path) -> None:
    def after(steps: int) -> dict[str, torch.Tensor]:
        rates: dict[str, Any] = {"weight_decay": 1.0, "learning_rate": 0.1}
        go(small(policy={"module": f"{__name__}:Frozen"}, total_timesteps=steps, **rates), tmp_path)
        return dict(checkpoints.read(tmp_path / checkpoints.FILE_NAME).tensors)

    few, more = after(8 * 16), after(8 * 16 * 4)
    assert few["policy/own.module.seen.weight"].equal(more["policy/own.module.seen.weight"])
    assert not few["policy/own.module.value.weight"].equal(more["policy/own.module.value.weight"])
