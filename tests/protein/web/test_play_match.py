"""`play/draw.js` and `play/match.js`: what a person sees of a game and does in it, without a page."""

import base64
import json
from typing import Any

import numpy as np
import pytest
from node import PLAY, run_module

from protein import envs_c
from protein.envs_c import drawing, worlds

# A policy that plays at random, the same each time, and counts what it is asked.
GIVEN = """
import { readFileSync } from "node:fs";
import { GAMES, between, draw, kept, look } from "play/draw.js";
import { Match } from "play/match.js";
import { World } from "play/world.js";
const bytes = Object.fromEntries(
  Object.entries(JSON.parse(readFileSync(0, "utf8"))).map(([name, text]) => [name, Buffer.from(text, "base64")]),
);
const found = {};
const random = (seed) => () => ((seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32);
function playing(world, seed = 1) {
  const draw = random(seed);
  return {
    asked: 0, resets: 0,
    reset(...ended) { this.resets += !ended.length || ended.some((flags) => flags.some(Boolean)); },
    act() {
      this.asked += 1;
      const choice = (i) => Math.floor(draw() * world.actionSizes[i % world.actionComponents]);
      const action = world.continuousActions ? () => 2 * draw() - 1 : (_, i) => choice(i);
      this.last = Array.from(world.actions, action);
      return { actions: this.last, values: [draw()] };
    },
    seed() {},
    require() {},
  };
}
async function game(name, { frameSkip = 1, seed = 3, policy = true } = {}) {
  const world = await World.load(bytes[name], { frameSkip });
  return new Match(world, policy ? playing(world) : null, { seed });
}
"""


def told(code: str) -> dict[str, Any]:
    """Runs code that fills `found`, given the bytes of every world."""
    given = {name: base64.b64encode(worlds.read(name)).decode() for name in worlds.names()}
    answer = run_module(GIVEN + code + "\nprocess.stdout.write(JSON.stringify(found));", json.dumps(given).encode())
    found: dict[str, Any] = json.loads(answer)
    return found


def test_every_game_draws_something_and_only_numbers_in_states_that_random_play_reaches() -> None:
    found = told("""
        const pen = () => new Proxy({ drawn: 0, outside: 0, wrong: [] }, {
          get: (kept, key) => kept[key] ?? ((...given) => {
            if (["fill", "fillRect", "stroke", "fillText"].includes(key)) kept.drawn += 1;
            const wrong = given.some((one) => typeof one === "number" && !Number.isFinite(one));
            const sizes = { arc: given.slice(2, 3), roundRect: given.slice(2), fillRect: given.slice(2) }[key] ?? [];
            if (wrong || sizes.some((size) => size < 0)) kept.wrong.push([key, given]);
          }),
          set: (kept, key, value) => {
            if (/NaN|undefined/.test(String(value))) kept.wrong.push([key, value]);
            kept[key] = value;
            return true;
          },
        });
        for (const name of Object.keys(bytes)) {
          const match = await game(name, { frameSkip: 4 });
          const pace = random(5);
          let least = Infinity;
          const wrong = [];
          for (let i = 0; i < 300; i++) {
            match.advance(2.5 * pace());
            const context = pen();
            draw(context, match.game, match.picture(), match.world.observation, 640, 480);
            least = Math.min(least, context.drawn);
            wrong.push(...context.wrong);
          }
          found[name] = { least, wrong: wrong.slice(0, 3), own: Object.hasOwn(GAMES, name), episodes: match.episode };
        }
        // A game that nobody has drawn: bars, and its actions by number, whatever it observes.
        const unknown = look({ name: "constructor", actionSizes: [12, 3], continuousActions: 0 });
        const context = pen();
        for (const seen of [[], [NaN, 1], [0], [1e-30, -Infinity, 3], Array(500).fill(2)])
          draw(context, unknown, {}, Float32Array.from(seen), 300, 200);
        found.unknown = { wrong: context.wrong.slice(0, 3), drawn: context.drawn, actions: unknown.actions };
        found.continuous = look({ name: "?", actionSizes: [], continuousActions: 3 }).actions;
        found.pace = Object.fromEntries(Object.entries(GAMES).map(([name, one]) => [name, one.framesPerSecond]));
    """)
    unknown, continuous, pace = (found.pop(key) for key in ("unknown", "continuous", "pace"))
    assert found.keys() == set(worlds.names())
    for name, one in found.items():
        assert not one["wrong"], (name, one["wrong"])
        assert one["least"] > 1, f"{name}: nothing but the background"
    assert sum(one["episodes"] for one in found.values()) > 5  # also ends and beginnings were drawn
    assert not unknown["wrong"] and unknown["drawn"] > 5
    assert [len(component) for component in unknown["actions"]] == [12, 3]
    assert unknown["actions"][0][:2] == [["0"], ["1", "1"]] and unknown["actions"][1][1] == ["1"]
    assert [len(component) for component in continuous] == [2, 2, 2]
    # The same look as the GIFs.
    assert pace.items() >= drawing.FRAMES_PER_SECOND.items()


def test_colours_are_those_of_the_gifs() -> None:
    source = (PLAY / "draw.js").read_text()
    for name in ("BACKGROUND", "FAINT", "LIGHT", "AMBER", "BLUE", "GREEN", "RED", "VIOLET"):
        red, green, blue = getattr(drawing, name)
        assert f'const {name} = "#{red:02x}{green:02x}{blue:02x}";' in source


def test_a_policy_plays_the_same_games_at_any_pace() -> None:
    """Against a world that is stepped by hand: each decision is made on the same observation."""
    found = told("""
        const skips = { breakout: 4, cartpole: 3, entities: 4, memory: 2, pendulum: 2, pong: 5 }; // the others: 1
        const hash = (values) => values.reduce((sum, value, i) => (sum * 31 + value * (i + 1)) % 1e9, 7);
        const seen = (world, episode, log) => log.push(`${episode}: ${hash(world.observation.subarray(0, 800))}`);
        for (const name of Object.keys(bytes)) {
          const frameSkip = skips[name] ?? 1;
          const bare = await World.load(bytes[name], { frameSkip });
          const policy = playing(bare);
          const expected = [];
          const scores = [];
          bare.reset(11, 0);
          for (let episode = 0; expected.length < 150;) {
            seen(bare, episode, expected);
            const { ended, scores: last, lengths, terminals, truncations } = bare.step(policy.act().actions);
            if ((terminals[0] | truncations[0]) && lengths[0] > 0) scores.push(last[0]); // else it has just come
            if (ended === bare.agents) bare.reset(11, (episode += 1));
          }
          const one = (found[name] = { same: [], scores: scores.length });
          for (const pace of [(draw) => draw(), (draw) => 30 * draw(), null]) {
            const match = await game(name, { frameSkip, seed: 11 });
            const { policy } = match;
            const { act } = policy;
            const [log, draw] = [[], random(7)];
            policy.act = function () { seen(match.world, match.episode, log); return act.call(this); };
            while (log.length < 150) if (pace) match.advance(pace(draw)); else match.step();
            const ended = match.scores.slice(0, scores.length - 1).join() === scores.slice(0, -1).join();
            one.same.push(ended && log.slice(0, 150).join() === expected.join());
            one.resets = policy.resets;
          }
        }
    """)
    assert {name: one["same"] for name, one in found.items()} == dict.fromkeys(found, [True] * 3)
    assert all(found[name]["scores"] > 1 for name in ("cartpole", "memory", "snake"))
    assert found["snake"]["resets"] > found["pong"]["resets"] == 1  # the memory of each snake that died is reset


def test_a_person_takes_over_and_hands_back_at_any_frame() -> None:
    found = told("""
        const match = await game("pong", { frameSkip: 5 });
        match.advance(5);
        match.advance(1); // within a step
        match.human = true;
        match.advance(4); // the step that the policy began
        const from = match.state.player_y;
        match.press("up");
        match.advance(8);
        found.up = match.state.player_y - from;
        found.top = match.state.player_y;
        match.release("up");
        match.press("down"); match.release("down"); // between two pictures
        match.advance(1);
        found.tapped = match.state.player_y;
        match.advance(3);
        found.stays = match.state.player_y;
        match.press("1:1"); // of a component that there is not
        match.press("x");
        match.advance(1);
        found.nothing = match.state.player_y;
        // Two keys: the later one counts, and the earlier one again when that is released.
        match.press("up"); match.press("down"); match.advance(2);
        found.later = match.state.player_y;
        match.release("down"); match.advance(2);
        found.again = match.state.player_y;
        const asked = match.policy.asked;
        match.advance(50);
        found.asked = match.policy.asked - asked; // it says what it would do, at its own pace
        match.releaseAll();
        match.human = false;
        const taken = [];
        const { step } = match.world;
        match.world.step = function () {
          taken.push([this.frameSkip, this.actions[0] === match.said.actions[0]]);
          return step.call(this);
        };
        match.advance(1);
        match.advance(20);
        found.back = taken;
        // The world is its own again, and no key holds on.
        found.held = match.held.length;
    """)
    assert found["up"] == 8 * 2**-6
    assert found["tapped"] == found["top"] - 2**-6 == found["stays"] == found["nothing"]
    assert found["later"] == found["stays"] - 2 * 2**-6 and found["again"] == found["stays"]
    assert found["asked"] == 10
    assert all(own for _, own in found["back"])
    assert all(1 <= frames <= 5 for frames, _ in found["back"]) and found["back"][-1][0] == 5
    assert found["held"] == 0


def test_in_a_game_of_sides_a_rival_plays_the_others() -> None:
    found = told("""
        for (const name of ["pong2", "arena"]) {
          const world = await World.load(bytes[name], { frameSkip: 2 });
          const [policy, rival] = [playing(world, 1), playing(world, 9)];
          const match = new Match(world, policy, { rival });
          match.advance(1);
          const half = world.actions.length / 2;
          const own = match.said.actions.slice(0, half).concat(match.replies.actions.slice(half));
          const differs = String(match.said.actions) !== String(match.replies.actions);
          found[name] = [[...world.actions].join() === own.join(), differs, rival.asked];
          match.human = true;
          match.press("up");
          match.advance(4);
          found[name].push(world.actions[world.actionComponents - (name === "arena" ? 2 : 1)]);
          const alone = new Match(world, null, { rival }); // a person against a policy
          alone.advance(5);
          found[name].push(world.actions[0], [...world.actions].slice(half).join() === rival.last.slice(half).join());
        }
    """)
    assert found == {name: [True, True, 1, 1, 0, True] for name in ("pong2", "arena")}


def test_keys_act_for_an_agent_that_lives_and_a_script_for_those_whom_nobody_plays() -> None:
    found = told("""
        const match = await game("frontier16");
        match.human = true;
        match.press("up");
        const { step } = match.world;
        Object.assign(found, { agents: new Set(), wrong: 0, last: [] });
        match.world.step = function (...given) {
          const { state } = this.state().agents;
          const lives = [...state.subarray(0, this.agents)].includes(1);
          found.agents.add(match.agent);
          found.wrong += lives && (state[match.agent] !== 1 || this.actions[3 * match.agent] !== 1);
          return step.apply(this, given);
        };
        for (let frame = 0; frame < 1500; frame += 1) match.advance(1);
        found.agents = [...found.agents];
        for (const name of ["pong2", "arena"]) {
          const alone = await game(name, { policy: false });
          alone.press("up");
          found[name] = Array.from({ length: 60 }, () => { alone.advance(1); return [...alone.world.actions]; });
        }
    """)
    assert len(found["agents"]) > 1 and found["wrong"] == 0
    for name in ("pong2", "arena"):
        envs = envs_c.VecEnv(name, 1, seed=3)
        count, width = envs.spec.agents_per_env, envs.spec.observation_size
        seen, rewards = np.zeros((count, width), np.float32), np.zeros(count, np.float32)
        terminals, truncations = np.zeros((2, count), np.bool_)
        envs.reset(3, seen)
        scripts = np.full(count, len(envs.spec.scripts) - 1, np.int32)
        for taken in found[name]:
            actions = np.zeros((count, len(envs.spec.action_sizes)), np.int32)
            envs.act(scripts, actions)
            own = np.array(taken, np.int32).reshape(actions.shape)
            assert own[1:].tolist() == actions[1:].tolist()
            envs.step(own, seen, rewards, terminals, truncations)
        assert len({tuple(taken[-1:]) for taken in found[name]}) > 1  # they move


def test_games_wait_for_keys_turn_and_push_as_each_needs() -> None:
    found = told("""
        // Moves one by one: nothing without a key, each press a move, two presses that came at once both count.
        const board = await game("g2048", { policy: false });
        board.advance(40);
        found.waits = board.decisions;
        board.press("left"); board.release("left"); board.press("up"); board.release("up"); board.press("down");
        board.advance(0.01);
        found.first = board.decisions;
        board.advance(40);
        found.moves = board.decisions;
        board.press("down", true); // held: again and again, but never more than one ahead
        board.press("down", true);
        board.advance(40);
        found.repeated = board.decisions;
        // Memory goes on by itself, and waits for the answer.
        const memory = await game("memory", { policy: false });
        memory.press("2"); memory.release("2");
        memory.advance(200);
        found.question = [memory.state.frames_to_ask, memory.scores.length];
        memory.press(String(memory.state.cue + 1));
        memory.advance(1);
        found.answer = memory.scores;
        // A snake goes where the key says, seen from above, and not backwards.
        const snake = await game("snake", { policy: false });
        found.headings = [];
        for (const key of ["up", "right", "down", "left", "up"]) {
          const before = snake.state.bodies.heading[0];
          snake.press(key); snake.release(key);
          snake.advance(1);
          found.headings.push([before, ["up", "right", "down", "left"].indexOf(key), snake.state.bodies.heading[0]]);
        }
        // Cartpole without a key: pushes that cancel out, so it stands longer than under one push.
        const pole = await game("cartpole", { policy: false });
        while (!pole.scores.length) pole.advance(1);
        found.alone = pole.scores[0];
        pole.restart(3);
        pole.press("left");
        while (!pole.scores.length) pole.advance(1);
        found.pushed = pole.scores[0];
        // Continuous: to one side, to the other, both, none.
        const rod = await game("pendulum", { policy: false });
        found.torques = [["left"], ["right"], ["left", "right"], [], ["0:1"]].map((keys) => {
          rod.releaseAll();
          keys.forEach((key) => rod.press(key));
          rod.advance(1);
          return rod.world.actions[0];
        });
        // Three components at once.
        const squad = await game("entities", { frameSkip: 4 });
        squad.human = true;
        for (const key of ["right", "down", "5"]) squad.press(key);
        squad.advance(1);
        found.squad = [...squad.world.actions.slice(0, 3)];
        found.others = [...squad.world.actions.slice(3)].join() === squad.said.actions.slice(3).join();
    """)
    assert (found["waits"], found["first"], found["moves"], found["repeated"]) == (0, 1, 2, 3)
    assert found["question"] == [0, 0] and found["answer"] == [1]
    for before, wanted, after in found["headings"]:
        assert after == (before if (wanted - before) % 4 == 2 else wanted)
    assert found["alone"] > 1.5 * found["pushed"]
    assert found["torques"] == [1, -1, 0, 0, 1]
    assert found["squad"] == [1, 2, 5] and found["others"]


def test_between_two_frames_things_move_and_jumps_jump() -> None:
    found = told("""
        const pong = GAMES.pong;
        const a = { player_y: 0, opponent_y: 0.5, ball_y: 0, frames_to_hit: 4, direction: 1 };
        const b = { player_y: 0.02, opponent_y: 0, ball_y: 0.04, frames_to_hit: 3, direction: 1 };
        found.half = between(pong, kept(pong, a), b, 0.5);
        found.start = between(pong, kept(pong, a), b, 0);
        found.end = between(pong, kept(pong, a), b, 1);
        const squad = { agent_x: Float32Array.of(0, 1), agent_y: [0, 0], creature_x: [0], creature_y: [0] };
        const before = kept(GAMES.entities, squad);
        squad.agent_x[0] = 0.1; // what was kept is a copy
        squad.agent_x[1] = -1;
        found.squad = between(GAMES.entities, before, squad, 0.5).agent_x;
        // A picture at a fraction of a frame lies between the two frames beside it; a new game does not.
        const match = await game("pong");
        const seen = [];
        for (let i = 0; i < 40; i++) { match.advance(0.25); seen.push(match.picture().frames_to_hit); }
        found.seen = seen;
        match.restart(4);
        found.restarted = match.picture().frames;
    """)
    assert found["half"]["player_y"] == 0.01 and found["half"]["frames_to_hit"] == 3.5
    assert found["half"]["opponent_y"] == 0  # a serve: it is in the middle at once
    assert found["start"]["player_y"] == 0 and found["end"]["player_y"] == 0.02
    assert found["squad"] == [pytest.approx(0.05), -1]
    seen = found["seen"]
    assert seen == sorted(seen, reverse=True) and len(set(seen)) > 30
    assert found["restarted"] == 0
