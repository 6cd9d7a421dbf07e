// Learning in the page: PPO of an MLP over many games, by `protein/web/learner.c`, equal to the trainer's update.
//
//   const learner = await Learner.load(bytes, world, settings, 0);   // settings: see `Learner.load`
//   learner.batch();                              // collects a batch and learns from it, some tenths of a second
//   new Policy(learner.about(), learner.layers());    // as it is now
//
// There is one world, which holds each game in turn: a game's whole state is a few bytes. A page learns in a worker, so
// that drawing never waits for it: `protein/web/play.py` makes one script of world.js and this module (see the end).

import { World } from "./world.js";

const HEAD = 16; // columns of the output layer, as in learner.c
const RECENT = 100; // games whose mean score is told
const ARRAYS = ["weights", "gradient", "observations", "actions", "rewards", "ends", "values", "x", "own_actions", "old_logprobs", "own_advantages", "own_returns", "logprobs", "advantages", "returns"];

export class Learner {
  // Begins to learn, with weights at random. `settings` are those of a run's config, under its names: `hidden_size`,
  // `num_envs`, `horizon`, `minibatch_size`, `update_epochs`, `total_timesteps`, `learning_rate`, `gamma`, `gae_lambda`,
  // `clip_coef`, `vf_coef`, `ent_coef`, `max_grad_norm`, `beta1`, `beta2`, `adam_eps`. Throws an Error of one line where
  // the game or the settings are none that can be learnt here.
  static async load(bytes, world, settings, seed = 0) {
    const { exports } = (await WebAssembly.instantiate(bytes)).instance;
    return new Learner(exports, world, settings, seed);
  }

  constructor(exports, world, settings, seed) {
    const { hidden_size: hidden, num_envs: games, horizon, minibatch_size: size } = settings;
    const [choices] = world.actionSizes;
    if (world.agents !== 1 || world.actionSizes.length !== 1 || choices >= HEAD)
      throw new Error(`${world.name} cannot be learnt here: it needs one agent with one choice of fewer than ${HEAD}`);
    if (hidden % 16 || games % 4 || size % 4 || (games * horizon) % size)
      throw new Error("units must be a multiple of 16, games and minibatches of 4, and a batch whole minibatches");
    Object.assign(this, { world, settings, games, choices, steps: 0, scores: [], batches: 0, _exports: exports });
    exports.setup(world.observationSize, hidden, choices, games, horizon, size);
    exports.begin(BigInt(seed));
    const { buffer } = exports.memory;
    const whole = games * horizon;
    const width = world.observationSize;
    const inner = (width + 1) * hidden + (hidden + 1) * hidden;
    const counts = { weights: inner + (hidden + 1) * HEAD, observations: (whole + games) * width, x: size * width };
    counts.gradient = counts.weights;
    counts.values = whole + games;
    for (const name of ["own_actions", "old_logprobs", "own_advantages", "own_returns"]) counts[name] = size;
    ARRAYS.forEach((name, number) => {
      const kind = name === "ends" ? Uint8Array : name.endsWith("actions") ? Int32Array : Float32Array;
      this[name] = new kind(buffer, exports.array(number), counts[name] ?? whole);
    });
    this._states = Array.from({ length: games }, (_, game) => {
      world.reset(seed, game);
      this._see(game);
      return world.bytes.slice();
    });
  }

  // The share of the run that is over.
  get progress() {
    return Math.min(1, this.steps / this.settings.total_timesteps);
  }

  // The mean score of the last games; null before the first has ended.
  get score() {
    return this.scores.length ? this.scores.reduce((a, b) => a + b, 0) / this.scores.length : null;
  }

  // Collects a batch and learns from it.
  batch() {
    const { settings: s, _exports: exports, games } = this;
    for (let step = 0; step < s.horizon; step++) {
      exports.act(step);
      this._step(step);
    }
    exports.act(s.horizon);
    exports.prepare(s.gamma, s.gae_lambda);
    const rate = s.learning_rate * 0.5 * (1 + Math.cos(Math.PI * this.progress)); // at this batch's beginning
    for (let epoch = 0; epoch < s.update_epochs; epoch++) {
      exports.shuffle();
      for (let from = 0; from < games * s.horizon; from += s.minibatch_size) {
        exports.gather(from);
        this.update(rate);
      }
    }
    exports.next();
    this.steps += games * s.horizon;
    this.batches += 1;
  }

  // One step of the optimiser over the arrays `x`, `own_actions` and so on. Returns the norm of the gradient.
  update(rate) {
    const s = this.settings;
    return this._exports.update(rate, s.clip_coef, s.vf_coef, s.ent_coef, s.max_grad_norm, s.beta1, s.beta2, s.adam_eps);
  }

  _step(step) {
    const { world, games, actions, rewards, ends, scores } = this;
    for (let game = 0, at = step * games; game < games; game++, at++) {
      world.bytes.set(this._states[game]);
      world.actions[0] = actions[at];
      const result = world.step();
      this._states[game].set(world.bytes);
      this._see(at + games);
      rewards[at] = result.rewards[0];
      ends[at] = result.ended;
      if (result.ended && scores.push(result.scores[0]) > RECENT) scores.shift();
    }
  }

  // Copies what the world shows into a row of the observations, bytes as numbers from 0 to 1.
  _see(row) {
    const { observation, observationHigh } = this.world;
    const from = row * observation.length;
    if (!observationHigh) this.observations.set(observation, from);
    else for (let k = 0; k < observation.length; k++) this.observations[from + k] = observation[k] / observationHigh;
  }

  // The network's layers, `outputs x inputs` as in a checkpoint, under the names of one.
  layers() {
    const { hidden_size: hidden } = this.settings;
    const found = new Map();
    let at = 0;
    for (const [name, inputs, columns, outputs] of [
      ["encoder.layers.0", this.world.observationSize, hidden, hidden],
      ["encoder.layers.1", hidden, hidden, hidden],
      ["head", hidden, HEAD, this.choices + 1],
    ]) {
      const values = new Float32Array(outputs * inputs);
      for (let i = 0; i < inputs; i++) for (let o = 0; o < outputs; o++) values[o * inputs + i] = this.weights[at + i * columns + o];
      at += inputs * columns;
      found.set(`policy/${name}.weight`, { values, shape: [outputs, inputs] });
      found.set(`policy/${name}.bias`, { values: this.weights.slice(at, at + outputs), shape: [outputs] });
      at += columns;
    }
    return found;
  }

  // What a Policy needs to know beside the layers.
  about() {
    const { world, settings } = this;
    const { observationShape, observationHigh, actionSizes } = world;
    const network = { encoder: "mlp", num_layers: 2, activation: "relu", recurrence: "none", separate_value: false, value_bins: 0, hidden_size: settings.hidden_size };
    return { env: world.name, frameSkip: world.frameSkip, greedy: false, observationShape, observationHigh, actionSizes, continuousActions: 0, network };
  }
}

// In a worker: the first message is what is to be learnt, each later one asks for a batch. The answer is the policy then.
if (globalThis.WorkerGlobalScope) {
  let [learner, seconds] = [null, 0];
  onmessage = async ({ data: { learner: file, wasm, settings, frameSkip, seed } }) => {
    try {
      const began = performance.now();
      if (learner) learner.batch();
      else learner = await Learner.load(file, await World.load(wasm, { frameSkip }), settings, seed);
      seconds += (performance.now() - began) / 1000;
      const { steps, score, progress, scores } = learner;
      postMessage({ steps, score, progress, seconds, games: scores.length, about: learner.about(), layers: learner.layers() });
    } catch (error) {
      postMessage({ error: error.message });
    }
  };
}
