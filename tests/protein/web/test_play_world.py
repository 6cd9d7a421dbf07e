"""`play/world.js`: the games of the page are those of `VecEnv`, bit for bit."""

import base64
import json
from typing import Any

import numpy as np
from env_buffers import scripted_actions
from node import run_module

from protein import envs_c
from protein.envs_c import worlds

STEPS = 400
CASES = [(0, 0, 1), (7, 3, 4), (2**64 - 1, 2**32, 9)]  # seed, index of the instance, frame skip

# Plays each case with the actions that are given, and writes all that is observable, as bytes in a fixed order.
PLAYS = """
import { readFileSync, writeSync } from "node:fs";
import { World } from "play/world.js";
const out = [];
const add = (array) => out.push(Buffer.from(array.buffer.slice(array.byteOffset, array.byteOffset + array.byteLength)));
for (const { wasm, seed, index, frameSkip, actions, continuous } of JSON.parse(readFileSync(0, "utf8"))) {
  const world = await World.load(Buffer.from(wasm, "base64"), { frameSkip });
  const all = new (continuous ? Float32Array : Int32Array)(Uint8Array.from(Buffer.from(actions, "base64")).buffer);
  add(world.reset(BigInt(seed), BigInt(index)));
  const size = world.actions.length;
  for (let at = 0; at < all.length; at += size) {
    const result = world.step(all.subarray(at, at + size));
    for (const array of [world.observation, result.rewards, result.terminals, result.truncations]) add(array);
    for (let agent = 0; agent < world.agents; agent++)
      if ((result.terminals[agent] | result.truncations[agent]) && result.lengths[agent])
        for (const array of [result.scores, result.returns, result.lengths]) add(array.subarray(agent, agent + 1));
  }
}
const bytes = Buffer.concat(out);
for (let at = 0; at < bytes.length; ) at += writeSync(1, bytes, at);
"""


def native(name: str, seed: int, index: int, frame_skip: int, steps: int) -> tuple[bytes, bytes]:
    """Returns the actions, and what `PLAYS` is to write."""
    spec = envs_c.spec(name)
    envs = envs_c.VecEnv(name, 1, seed=seed, frame_skip=frame_skip, first_index=index)
    observations = np.zeros((envs.num_agents, spec.observation_size), spec.observation_dtype)
    rewards = np.zeros(envs.num_agents, np.float32)
    terminals, truncations = np.zeros((2, envs.num_agents), np.bool_)
    envs.reset(seed, observations)
    taken, seen = [], [observations.tobytes()]
    for step in range(steps):
        actions = scripted_actions(step, envs.num_agents, spec)
        envs.step(actions, observations, rewards, terminals, truncations)
        taken.append(actions.tobytes())
        seen += [observations.tobytes(), rewards.tobytes(), terminals.tobytes(), truncations.tobytes()]
        episodes = envs.drain_episodes()
        for row in zip(episodes.score, episodes.return_, episodes.length, strict=True):
            seen += [number.tobytes() for number in row]
    return b"".join(taken), b"".join(seen)


def test_every_game_is_the_native_one_bit_for_bit() -> None:
    asked: list[dict[str, Any]] = []
    expected = []
    for name in envs_c.names():
        spec = envs_c.spec(name)
        steps = min(STEPS, max(3, 8000 // spec.agents_per_env))
        for seed, index, frame_skip in CASES:
            actions, seen = native(name, seed, index, frame_skip, steps)
            expected.append(seen)
            case = {"seed": str(seed), "index": str(index), "frameSkip": frame_skip}
            case |= {"continuous": bool(spec.continuous_actions), "actions": base64.b64encode(actions).decode()}
            asked.append(case | {"wasm": base64.b64encode(worlds.read(name)).decode()})
    found = run_module(PLAYS, json.dumps(asked).encode())
    assert len(found) == sum(map(len, expected))
    at = 0
    for case, seen in zip(asked, expected, strict=True):
        assert found[at : at + len(seen)] == seen, {key: case[key] for key in ("seed", "index", "frameSkip")}
        at += len(seen)


ASKS = """
import { readFileSync } from "node:fs";
import { World } from "play/world.js";
const bytes = Object.fromEntries(
  Object.entries(JSON.parse(readFileSync(0, "utf8"))).map(([name, text]) => [name, Buffer.from(text, "base64")]),
);
const tried = async (act) => { try { return await act(); } catch (error) { return error.message; } };
const plain = (_, value) => (ArrayBuffer.isView(value) ? [...value] : value);
const kept = (state) => JSON.parse(JSON.stringify(state, plain));
const found = {};
"""


def asked(code: str) -> dict[str, Any]:
    """Runs code that fills `found`, given the bytes of every world."""
    given = {name: base64.b64encode(worlds.read(name)).decode() for name in worlds.names()}
    answer = run_module(ASKS + code + "\nprocess.stdout.write(JSON.stringify(found));", json.dumps(given).encode())
    found: dict[str, Any] = json.loads(answer)
    return found


def test_a_world_says_what_it_is_and_shows_its_state() -> None:
    found = asked("""
        for (const [name, file] of Object.entries(bytes)) {
          const world = await World.load(file);
          world.reset(5, 2);
          for (let step = 0; step < 6; step++) world.step();
          const { description, observationSize, observationShape, observationHigh } = world;
          const { actionSizes, continuousActions, agents, scoreRange, solvedScore, maxFrames } = world;
          const seen = { description, observationSize, observationShape, observationHigh };
          const about = { ...seen, actionSizes, continuousActions, agents, scoreRange, solvedScore, maxFrames };
          found[name] = { about, state: kept(world.state()) };
        }
    """)
    for name, (about, state) in {name: (one["about"], one["state"]) for name, one in found.items()}.items():
        spec = envs_c.spec(name)
        assert about == {
            "description": spec.description,
            "observationSize": spec.observation_size,
            "observationShape": list(spec.observation_shape),
            "observationHigh": int(spec.observation_high) if spec.observation_dtype == "uint8" else 0,
            "actionSizes": list(spec.action_sizes),
            "continuousActions": spec.continuous_actions,
            "agents": spec.agents_per_env,
            "scoreRange": list(spec.score_range),
            "solvedScore": spec.solved_score,
            "maxFrames": spec.max_episode_steps,
        }
        assert state, f"{name}.h shows nothing: define {name.upper()}_SHOWN"
    # The struct as the drawings in Python read it.
    from protein.envs_c import drawing

    for name, kind in (("maze", drawing._MAZE), ("snake", drawing._SNAKE)):
        envs = envs_c.VecEnv(name, 1, seed=5, first_index=2)
        spec = envs.spec
        seen = np.zeros((envs.num_agents, spec.observation_size), spec.observation_dtype)
        outputs = np.zeros(envs.num_agents, np.float32), *np.zeros((2, envs.num_agents), np.bool_)
        for _ in range(6):
            envs.step(np.zeros((envs.num_agents, 1), np.int32), seen, *outputs)
        struct = drawing._struct(envs, kind)
        state = found[name]["state"]
        bodies = state.pop("bodies", {})
        assert all(np.array_equal(np.ravel(struct[field]), np.ravel(state[field])) for field in state)
        assert all(np.array_equal(struct["bodies"][field].ravel(), bodies[field]) for field in bodies)
        assert bool(bodies) == (name == "snake")


def test_each_frame_of_a_step_can_be_looked_at_also_where_an_episode_ended_in_it() -> None:
    """Against a second world that decides at each frame."""
    found = asked("""
        for (const name of ["pong", "cartpole", "breakout", "maze"]) {
          const slow = await World.load(bytes[name], { frameSkip: 7 });
          const quick = await World.load(bytes[name]);
          let same = 0, ends = 0;
          for (let seed = 0; seed < 20; seed++) {
            slow.reset(seed), quick.reset(seed);
            for (let step = 0, over = false; step < 60 && !over; step++) {
              const { ended } = slow.step([(step * 5 + seed) % 2]);
              for (let frame = 1; frame <= 7 && !over; frame++) {
                over = quick.step([(step * 5 + seed) % 2]).ended > 0;
                const wanted = kept(over ? quick.state(1) : quick.state());
                if (JSON.stringify(wanted) === JSON.stringify(kept(slow.state(frame)))) same++;
                else throw new Error(`${name}, seed ${seed}, step ${step}, frame ${frame}`);
              }
              if (over !== ended > 0) throw new Error("ends differ");
              if (JSON.stringify(kept(slow.state())) !== JSON.stringify(kept(quick.state()))) throw new Error("after");
              ends += over;
            }
          }
          found[name] = [same, ends];
        }
    """)
    assert all(same > 100 for same, _ in found.values())
    assert found["cartpole"][1] > 10


WRONG = {
    "(await World.load(bytes.pong)).step([3])": "actions[0] is 3; pong takes 0 to 2 there",
    "(await World.load(bytes.entities)).step(new Array(24).fill(5))": "actions[0] is 5; entities takes 0 to 2 there",
    "(await World.load(bytes.pendulum)).step([NaN])": "actions[0] is NaN; pendulum takes finite numbers there",
    "(await World.load(bytes.pong)).step([1, 2])": "pong needs 1 actions, got 2",
    "(await World.load(bytes.pong)).reset(-1)": "seed must be an integer from 0 to 2^64 - 1, got -1",
    "(await World.load(bytes.pong)).reset(0, 0.5)": "index must be an integer from 0 to 2^64 - 1, got 0.5",
    "(await World.load(bytes.pong)).reset('1')": "seed must be an integer from 0 to 2^64 - 1, got 1",
    "await World.load(bytes.pong, { frameSkip: 0 })": "frameSkip must be an integer from 1 to 1024, got 0",
    "await World.load(bytes.pong.subarray(0, 900))": "the game's file is damaged or none of this program (",
    "await World.load(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]))": "the file is WebAssembly, but no game of this",
    "delete globalThis.WebAssembly, await World.load(bytes.pong)": "this browser has no WebAssembly, which games need",
}


def test_what_is_wrong_is_said_in_a_line() -> None:
    messages = asked(
        "found.all = [];"
        + "".join(f"found.all.push(await tried(async () => {{ {code}; return 'nothing' }}));" for code in WRONG)
    )["all"]
    for message, says in zip(messages, WRONG.values(), strict=True):
        assert message.startswith(says), message
        assert "\n" not in message
