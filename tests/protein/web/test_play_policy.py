"""`play/policy.js` acts as the native run does: the same outputs to 1e-5, and so the same games, bit for bit."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
from node import run_module
from policy_files import make_checkpoint, native_game

from protein.envs_c import worlds
from protein.trainer.export import export_policy

# Of each game some policies; together they have everything that a policy can have.
CASES: list[tuple[str, dict[str, Any], bool]] = [
    ("pong", {}, False),
    ("pong", {"num_layers": 1, "activation": "tanh", "value_bins": 21, "value_limit": 50.0}, True),
    ("breakout", {"recurrence": "mingru", "hidden_size": 48}, True),
    ("cartpole", {"recurrence": "lstm", "value_bins": 11}, False),
    ("pendulum", {"hidden_size": 20}, False),
    ("pendulum", {"separate_value": True, "activation": "tanh"}, True),
    ("pendulum", {"recurrence": "lstm"}, True),
    ("memory", {"recurrence": "lstm", "hidden_size": 24}, False),
    ("maze", {"encoder": "cnn", "channels": 8, "recurrence": "mingru"}, False),
    ("g2048", {"encoder": "cnn", "channels": 16, "separate_value": True}, False),
    ("g2048", {"num_layers": 3}, True),
    ("entities", {"hidden_size": 40}, False),
    ("entities", {"recurrence": "mingru", "value_bins": 31}, True),
    ("snake", {"encoder": "cnn", "channels": 4}, False),
    ("snake", {"recurrence": "lstm", "hidden_size": 16}, False),
]


# Continuous actions differ in their last digits, so those games are led by the native run's actions.
PLAYS = """
import { readFileSync, writeSync } from "node:fs";
import { World } from "play/world.js";
import { Policy } from "play/policy.js";
const out = [];
const add = (array) => out.push(Buffer.from(array.buffer.slice(array.byteOffset, array.byteOffset + array.byteLength)));
for (const { wasm, policy: file, seed, index, steps, actions } of JSON.parse(readFileSync(0, "utf8"))) {
  const policy = Policy.parse(Buffer.from(file, "base64"));
  const world = await World.load(Buffer.from(wasm, "base64"), { frameSkip: policy.frameSkip });
  policy.require(world);
  const led = new Float32Array(Uint8Array.from(Buffer.from(actions, "base64")).buffer);
  const outputs = new Float32Array(steps * world.agents * (policy.rows + 1));
  add(world.reset(seed, index));
  for (let step = 0, at = 0; step < steps; step++) {
    const acted = policy.act(world.observation, { greedy: true });
    for (let agent = 0; agent < world.agents; agent++) {
      for (let row = 0; row < policy.rows; row++) outputs[at++] = acted.outputs[agent * policy.rows + row];
      outputs[at++] = acted.values[agent];
    }
    const size = world.actions.length;
    const result = world.step(policy.continuousActions ? led.subarray(step * size, (step + 1) * size) : acted.actions);
    policy.reset(result.terminals, result.truncations);
    for (const array of [world.observation, result.rewards, result.terminals, result.truncations]) add(array);
  }
  add(outputs);
}
const bytes = Buffer.concat(out);
for (let at = 0; at < bytes.length; ) at += writeSync(1, bytes, at);
"""


def test_every_kind_of_policy_plays_the_native_game(tmp_path: Path) -> None:
    asked, expected = [], []
    for number, (name, options, normalised) in enumerate(CASES):
        path = tmp_path / f"{number}.safetensors"
        make_checkpoint(path, name, options, normalised=normalised, seed=number)
        steps = 20 if name == "snake" else 100 if "encoder" in options else 250
        taken, seen, outputs = native_game(path, seed=number, index=number % 3, steps=steps)
        expected.append((seen, outputs))
        case = {"seed": number, "index": number % 3, "steps": steps, "actions": base64.b64encode(taken).decode()}
        case["wasm"] = base64.b64encode(worlds.read(name)).decode()
        asked.append(case | {"policy": base64.b64encode(export_policy(path)).decode()})
    found = run_module(PLAYS, json.dumps(asked).encode())
    at = 0
    for kind, (seen, outputs) in zip(CASES, expected, strict=True):
        own = np.frombuffer(found, np.float32, outputs.size, at + len(seen)).reshape(outputs.shape)
        assert np.abs(outputs).max() > 0.3, kind
        np.testing.assert_allclose(own[..., :-1], outputs[..., :-1], rtol=1e-5, atol=1e-5, err_msg=str(kind))
        # A distributional value is a sum of returns as large as the limit, in 32 bits in the native run.
        limit = kind[1].get("value_limit", 100.0) if kind[1].get("value_bins") else 10.0
        np.testing.assert_allclose(own[..., -1], outputs[..., -1], atol=1e-6 * limit, rtol=1e-5, err_msg=str(kind))
        assert found[at : at + len(seen)] == seen, kind
        at += len(seen) + outputs.nbytes
    assert at == len(found)


ASKS = """
import { readFileSync } from "node:fs";
import { World } from "play/world.js";
import { Policy } from "play/policy.js";
const tried = (act) => { try { return act(); } catch (error) { return error.message; } };
const given = JSON.parse(readFileSync(0, "utf8"));
for (const name of Object.keys(given)) given[name] = Buffer.from(given[name], "base64");
const found = {};
"""


def asked(code: str, **files: bytes) -> dict[str, Any]:
    """Runs code that fills `found`, with these files in `given`."""
    given = json.dumps({name: base64.b64encode(file).decode() for name, file in files.items()}).encode()
    answer: dict[str, Any] = json.loads(run_module(ASKS + code + "\nconsole.log(JSON.stringify(found));", given))
    return answer


def test_actions_are_drawn_from_the_distribution_and_a_seed_draws_them_again(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "discrete", "entities", {"hidden_size": 8}, seed=5)
    make_checkpoint(tmp_path / "continuous", "pendulum", {"hidden_size": 8}, seed=6)
    found = asked(
        """
        const discrete = Policy.parse(given.discrete), continuous = Policy.parse(given.continuous);
        const seen = new Float32Array(249).fill(0.3);
        const counts = new Array(12).fill(0);
        for (let draw = 0; draw < 20000; draw++) {
          const { actions } = discrete.act(seen, { greedy: false });
          counts[actions[0]]++, counts[3 + actions[1]]++, counts[6 + actions[2]]++;
        }
        found.counts = counts, found.probabilities = [...discrete.act(seen).probabilities];
        found.again = [1, 1, 2].map((seed) => {
          discrete.seed(seed);
          return Array.from({ length: 40 }, () => [...discrete.act(seen, { greedy: false }).actions]).join();
        });
        const draw = () => continuous.act([0.1, 0.2, 0.3], { greedy: false }).actions[0];
        const drawn = Array.from({ length: 20000 }, draw);
        const mean = drawn.reduce((a, b) => a + b) / drawn.length;
        found.normal = [mean, Math.sqrt(drawn.reduce((sum, one) => sum + (one - mean) ** 2, 0) / drawn.length)];
        found.outputs = [...continuous.act([0.1, 0.2, 0.3]).outputs];
        """,
        discrete=export_policy(tmp_path / "discrete"),
        continuous=export_policy(tmp_path / "continuous"),
    )
    p = np.array(found["probabilities"])
    for part in (p[:3], p[3:6], p[6:]):
        assert abs(part.sum() - 1) < 1e-6
    # Of 20,000 draws, a frequency deviates by less than 0.0036; four deviations.
    assert np.abs(np.array(found["counts"]) / 20000 - p).max() < 4 * 0.0036
    mean, log_std, _ = found["outputs"]
    assert abs(found["normal"][0] - mean) < 4 * np.exp(log_std) / np.sqrt(20000)
    assert abs(found["normal"][1] / np.exp(log_std) - 1) < 4 / np.sqrt(2 * 20000)
    first, again, other = found["again"]
    assert first == again != other


def test_half_the_bits_are_half_the_file_and_nearly_the_same_outputs(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "one", "breakout", {"recurrence": "mingru"}, normalised=True, seed=1)
    whole, half = export_policy(tmp_path / "one"), export_policy(tmp_path / "one", half=True)
    assert len(half) < 0.6 * len(whole)  # the observations' moments stay whole
    found = asked(
        """
        const seen = Float32Array.from({ length: 78 }, (_, k) => Math.sin(k));
        for (const name of ["whole", "half"]) found[name] = [...Policy.parse(given[name]).act(seen).outputs];
        """,
        whole=whole,
        half=half,
    )
    difference = np.abs(np.array(found["whole"]) - np.array(found["half"])).max()
    assert 0 < difference < 5e-3


def test_what_is_wrong_is_said_in_a_line(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "one", "pong")
    found = asked(
        """
        found.all = [
          tried(() => Policy.parse(given.policy.subarray(0, given.policy.length - 5))),
          tried(() => Policy.parse(given.policy.subarray(0, 30))),
          tried(() => Policy.parse(new Uint8Array(0))),
          tried(() => Policy.parse(given.world)),
          tried(() => Policy.parse(given.checkpoint)),
          tried(() => Policy.parse(given.policy).act(new Float32Array(9))),
        ];
        const world = await World.load(given.world);
        found.all.push(tried(() => Policy.parse(given.policy).require(world)));
        """,
        policy=export_policy(tmp_path / "one"),
        checkpoint=(tmp_path / "one").read_bytes(),
        world=worlds.read("breakout"),
    )
    *damaged, other, size, game = found["all"]
    assert all(message.startswith("the policy's file is damaged or none of this program (") for message in damaged)
    assert other == "the file is no policy of this version, whose format is protein-policy-1"
    assert size == "an observation has 8 numbers per agent"
    assert game == 'the policy is of ["pong",[8],[3],0], the game is ["breakout",[78],[3],0]'
    assert not any("\n" in message for message in found["all"])
