"""`play/learner.js`: the page's update is the trainer's, and what it learns is what it plays."""

import base64
import json
from typing import Any

import numpy as np
import torch
from node import PLAY, run_module

from protein import envs_c
from protein.envs_c import worlds
from protein.trainer.config import PolicyConfig
from protein.trainer.model.policy import Policy
from protein.trainer.ppo.loss import Coefficients, Minibatch, ppo_loss

HIDDEN = 32
SETTINGS = {
    "hidden_size": HIDDEN,
    "num_envs": 8,
    "horizon": 16,
    "minibatch_size": 64,
    "update_epochs": 2,
    "total_timesteps": 1024,
    "learning_rate": 0.01,
    "gamma": 0.98,
    "gae_lambda": 0.95,
    "clip_coef": 0.2,
    "vf_coef": 1.5,
    "ent_coef": 0.003,
    "max_grad_norm": 0.3,
    "beta1": 0.9,
    "beta2": 0.999,
    "adam_eps": 1e-5,
}

LEARNS = """
import { readFileSync } from "node:fs";
import { World } from "play/world.js";
import { Learner } from "play/learner.js";
import { Policy } from "play/policy.js";
const { settings, files } = JSON.parse(readFileSync(0, "utf8"));
const bytes = (name) => Buffer.from(files[name], "base64");
const floats = (array) => Buffer.from(Float32Array.from(array).buffer).toString("base64");
const weights = (learner) =>
  [...learner.layers()].map(([name, { values, shape }]) => ({ name, shape, values: floats(values) }));
const tried = async (act) => { try { await act(); } catch (error) { return error.message; } return ""; };
const world = await World.load(bytes("breakout"), { frameSkip: 4 });
const learner = await Learner.load(bytes("learner"), world, settings, 3);
const found = { before: weights(learner), updates: [], norms: [] };
const taken = { observations: [], rewards: [], ends: [], actions: [], logprobs: [], values: [] };
const update = learner.update;
learner.update = (rate) => {
  if (!found.updates.length) {
    for (const name of Object.keys(taken)) taken[name] = floats(learner[name]);
    for (const name of ["advantages", "returns"]) taken[name] = floats(learner[name]);
  }
  const given = {};
  for (const name of ["x", "own_actions", "old_logprobs", "own_advantages", "own_returns"])
    given[name] = floats(learner[name]);
  found.norms.push(update.call(learner, rate));
  found.updates.push({ rate, given, after: weights(learner) });
};
learner.batch();
Object.assign(found, { taken, steps: learner.steps });
const policy = new Policy(learner.about(), learner.layers());
policy.require(world);
const seen = learner.observations.slice(0, 78);
found.acted = { seen: floats(seen), outputs: floats(policy.act(seen).outputs) };
found.refused = [
  await tried(async () => Learner.load(bytes("learner"), await World.load(bytes("entities")), settings)),
  await tried(async () => Learner.load(bytes("learner"), await World.load(bytes("pendulum")), settings)),
  await tried(() => Learner.load(bytes("learner"), world, { ...settings, hidden_size: 20 })),
];
process.stdout.write(JSON.stringify(found));
"""


def numbers(text: str) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), np.float32).copy())


def load_(policy: Policy, layers: list[dict[str, Any]]) -> None:
    state = {one["name"].removeprefix("policy/"): numbers(one["values"]).view(one["shape"]) for one in layers}
    policy.load_state_dict(state)


def test_a_batch_is_collected_and_learnt_from_as_the_trainer_does() -> None:
    files = {name: base64.b64encode(worlds.read(name)).decode() for name in ("breakout", "entities", "pendulum")}
    files["learner"] = base64.b64encode((PLAY / "learner.wasm").read_bytes()).decode()
    found = json.loads(run_module(LEARNS, json.dumps({"settings": SETTINGS, "files": files}).encode()))

    # The games are those of a batch of the native ones, and GAE is that of the loss's notation.
    games, horizon = 8, 16
    taken = {name: numbers(values) for name, values in found["taken"].items()}
    actions = taken["actions"].view(horizon, games).int().numpy()
    envs = envs_c.VecEnv("breakout", games, seed=3, frame_skip=4)
    seen = np.zeros((games, 78), np.float32)
    rewards, (terminals, truncations) = np.zeros(games, np.float32), np.zeros((2, games), np.bool_)
    envs.reset(3, seen)
    for step in range(horizon):
        assert np.array_equal(taken["observations"].view(horizon + 1, games, 78)[step].numpy(), seen)
        envs.step(np.ascontiguousarray(actions[step]), seen, rewards, terminals, truncations)
        assert np.array_equal(taken["rewards"].view(horizon, games)[step].numpy(), rewards)
        assert np.array_equal(taken["ends"].view(horizon, games)[step].numpy(), terminals | truncations)
    values, ends = taken["values"].view(horizon + 1, games), taken["ends"].view(horizon, games)
    advantage, advantages = torch.zeros(games), torch.zeros(horizon, games)
    for step in reversed(range(horizon)):
        go = 0.98 * (1 - ends[step])
        delta = taken["rewards"].view(horizon, games)[step] + go * values[step + 1] - values[step]
        advantage = advantages[step] = delta + go * 0.95 * advantage
    torch.testing.assert_close(taken["returns"].view(horizon, games), advantages + values[:-1], rtol=1e-4, atol=1e-5)
    normal = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    torch.testing.assert_close(taken["advantages"].view(horizon, games), normal, rtol=1e-4, atol=1e-4)

    # Each update is one of the loss's automatic derivative, of torch's clipping and its Adam, to rounding.
    policy = Policy(envs.spec, PolicyConfig(hidden_size=HIDDEN), generator=torch.Generator())
    load_(policy, found["before"])
    adam = torch.optim.Adam(policy.parameters(), lr=0.01, betas=(0.9, 0.999), eps=1e-5)
    clip = Coefficients(clip=0.2, value=1.5, entropy=0.003)
    assert len(found["updates"]) == 4
    for update, norm in zip(found["updates"], found["norms"], strict=True):
        given = {name: numbers(values) for name, values in update["given"].items()}
        batch = Minibatch(
            actions=given["own_actions"].int().unsqueeze(0),
            logprobs=given["old_logprobs"],
            advantages=given["own_advantages"],
            returns=given["own_returns"],
            weights=None,
            size=64,
        )
        output, _ = policy(given["x"].view(1, 64, 78))
        adam.zero_grad()
        ppo_loss(policy, output, batch, clip)["loss"].backward()
        expected = torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.3)
        assert abs(norm / expected.item() - 1) < 1e-4
        adam.param_groups[0]["lr"] = update["rate"]
        adam.step()
        after = {one["name"].removeprefix("policy/"): numbers(one["values"]) for one in update["after"]}
        for name, weight in policy.state_dict().items():
            torch.testing.assert_close(after[name], weight.flatten(), rtol=1e-3, atol=2e-5)
        load_(policy, update["after"])  # so that rounding does not add up
    assert found["steps"] == games * horizon

    with torch.inference_mode():
        output, _ = policy(numbers(found["acted"]["seen"]).view(1, 1, 78))
    torch.testing.assert_close(numbers(found["acted"]["outputs"]), output.flatten(), rtol=1e-5, atol=1e-5)
    one, other, units = found["refused"]
    assert one.startswith("entities cannot be learnt here: it needs one agent")
    assert other.startswith("pendulum cannot be learnt here: it needs one agent")
    assert units.startswith("units must be a multiple of 16")
