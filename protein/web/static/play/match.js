// One game as it goes on: a world, the policy that plays it, and a person who may take over one agent. No page.
//
//   const match = new Match(world, policy, { seed: 7 });
//   match.advance(1.5);                       // frames of the game; halves show what is between two of them
//   draw(context, match.game, match.picture(), ...)
//   match.human = true; match.press("up"); match.release("up");
//
// Episode k of seed s is the world's game (s, k), so that two matches of one seed play the same games. While a person
// plays, the policy goes on to say what it would do: it remembers what has happened, and takes over again at any time.

import { between, kept, look } from "./draw.js";

const REST = 1; // seconds for which the end of an episode stays to be seen, at speed 1
const QUEUE = 2; // key presses that may wait for their step
const HISTORY = 240; // decisions whose values are kept

export const DIRECTIONS = ["up", "right", "down", "left"];

export class Match {
  /** `policy` may be null: then only a person plays. In a game of sides, a `rival` plays the others than the first. */
  constructor(world, policy, { seed = 0, greedy = policy?.greedy, rival = null } = {}) {
    for (const one of [policy, rival]) one?.require(world);
    Object.assign(this, { world, policy, rival, greedy, game: look(world), human: !policy });
    this.others = (world.agents / (this.game.sides ?? 1)) * world.actionComponents; // where their actions begin
    this.skip = world.frameSkip; // frames between two decisions of the policy
    this.restart(seed);
  }

  /** Begins the first game of a seed. */
  restart(seed) {
    Object.assign(this, { seed, scores: [], values: [] });
    for (const one of [this.policy, this.rival]) one?.seed(seed);
    this.begin(0);
  }

  begin(episode) {
    this.world.reset(this.seed, episode);
    for (const one of [this.policy, this.rival]) one?.reset();
    // `frames` of the step have been taken, `shown` of them are seen; `age`: frames since the policy was asked.
    // `agent` is the player: the first one, or one that lives.
    Object.assign(this, { agent: 0, episode, frames: 0, shown: 0, age: Infinity, clock: 0, rest: 0, decisions: 0, reward: 0, ended: null, whole: false, said: null, replies: null, before: null, held: [], taps: [] });
    this.see(null);
  }

  /** Moves on by frames, a number that need not be whole; until `enough()`. Returns how many whole frames it moved. */
  advance(frames, enough = () => false) {
    const before = kept(this.game, this.state);
    const { episode } = this;
    let moved = 0;
    this.clock += frames;
    while (this.clock >= 1) {
      if (enough() || !this.frame()) {
        this.clock = 1; // what waits for a key goes on at once
        break;
      }
      this.clock -= 1;
      moved += 1;
    }
    if (moved) this.see(moved === 1 && episode === this.episode ? before : null);
    return moved;
  }

  /** Takes one whole decision, and shows how it ended. Returns whether it could. */
  step() {
    this.clock = 0;
    if (this.rest) this.rest = 1;
    else this.shown = this.frames;
    const moved = this.frame();
    if (!this.rest) this.showTo(this.frames);
    this.see(null);
    return moved;
  }

  /** What is to be drawn now. */
  picture() {
    return this.before ? between(this.game, this.before, this.state, Math.min(1, this.clock)) : this.state;
  }

  /** The running episode's score, or that of the episode which has just ended. */
  get score() {
    return this.ended ?? this.game.score?.(this.state, this.agent) ?? this.reward;
  }

  /** Looks at the world again. `seen` counts how often. */
  see(before) {
    this.seen = (this.seen ?? 0) + 1;
    this.before = before && Object.keys(before).length ? before : null;
    this.state = this.world.state(this.shown);
    if (this.shown === this.frames) this.follow();
  }

  follow() {
    const { game, world, agent } = this;
    this.agent = game.follow?.(this.state, agent, world.agents) ?? 0;
    if (this.agent !== agent) this.reward = 0;
  }

  frame() {
    if (this.rest > 0) {
      this.rest -= 1;
      if (this.rest <= 0) this.begin(this.episode + 1);
      return true;
    }
    if (this.shown === this.frames) {
      if (this.ended !== null) this.ended = null; // of an agent that ended alone
      if (!this.decide()) return false;
    }
    this.showTo(this.shown + 1);
    return true;
  }

  showTo(frames) {
    this.shown = frames;
    if (frames === this.frames && this.whole) this.rest = Math.max(1, Math.round(REST * this.game.framesPerSecond));
  }

  decide() {
    const { world, game } = this;
    if (this.shown) this.state = world.state(); // as the action is chosen for it
    this.follow();
    const { agent } = this;
    const waits = this.human && !this.taps.length && (game.waits ? game.waits(this.state) : false);
    if (waits) return false;
    const asks = this.policy || this.rival;
    if (asks && this.age >= this.skip) {
      [this.said, this.replies] = [this.policy, this.rival].map((one) => one?.act(world.observation, { greedy: this.greedy }));
      this.age = 0;
      if (this.said) this.values.push(this.said.values[agent]);
      if (this.values.length > HISTORY) this.values.shift();
    }
    if (this.said) world.actions.set(this.said.actions);
    if (this.replies) world.actions.set(this.replies.actions.slice(this.others), this.others);
    // Whom nobody plays a script plays, where the game has one.
    if (!this.policy) for (let k = 0; k < (this.rival ? this.others / world.actionComponents : world.agents); k += 1) if (k !== agent) world.script(k);
    if (this.human) this.takePresses();
    const frames = this.human && game.everyFrame ? 1 : asks ? this.skip - this.age : this.skip; // whoever takes over ends the step
    world.frameSkip = frames;
    const found = world.step();
    Object.assign(this, { frames, shown: 0, age: this.age + frames, decisions: this.decisions + 1, reward: this.reward + found.rewards[agent] });
    this.whole = found.ended === world.agents;
    if (!this.whole) for (const one of [this.policy, this.rival]) one?.reset(found.terminals, found.truncations);
    if ((found.terminals[agent] || found.truncations[agent]) && found.lengths[agent] > 0) { // else it has just come
      this.ended = found.scores[agent];
      this.scores.push(this.ended);
      this.reward = 0;
    }
    return true;
  }

  /** A key went down: a direction, a character, or "component:action" for one of the listed actions. */
  press(key, again = false) {
    if (this.queues ? !this.taps.length || (!again && this.taps.length < QUEUE) : !again) this.taps.push(key);
    if (!this.held.includes(key)) this.held.push(key);
  }

  release(key) {
    this.held = this.held.filter((one) => one !== key);
  }

  releaseAll() {
    this.held = [];
    this.taps = [];
  }

  /** Whether the game takes presses one by one, and not how long a key is held. */
  get queues() {
    return Boolean(this.game.waits || this.game.steer);
  }

  /** Whether a key means something in this game. */
  knows(key) {
    return (this.game.steer && DIRECTIONS.includes(key)) || this.game.actions.some((component) => component.some(([, own]) => own === key));
  }

  takePresses() {
    const from = this.agent * this.world.actionComponents;
    const keys = this.queues ? this.taps.splice(0, 1) : [...this.held, ...this.taps.splice(0)];
    for (let component = 0; component < this.world.actionComponents; component += 1) {
      const listed = this.game.actions[component];
      const chosen = keys.map((key) => this.actionOf(component, key)).filter((action) => action !== undefined);
      if (this.world.continuousActions) this.world.actions[from + component] = Number(chosen.includes(1)) - Number(chosen.includes(0));
      else this.world.actions[from + component] = chosen.at(-1) ?? this.resting(listed);
    }
  }

  actionOf(component, key) {
    const [own, action] = key.split(":");
    if (action !== undefined) return Number(own) === component ? Number(action) : undefined;
    if (this.game.steer && DIRECTIONS.includes(key)) return this.game.steer(this.state, DIRECTIONS.indexOf(key));
    const found = this.game.actions[component].findIndex(([, one]) => one === key);
    return found < 0 ? undefined : found;
  }

  resting(listed) {
    const free = listed.findIndex(([, key]) => key === undefined);
    return free >= 0 ? free : (this.game.idle?.(this.decisions) ?? 0);
  }
}
