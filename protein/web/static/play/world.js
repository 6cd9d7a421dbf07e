// One instance of a C environment in the page: `envs_c/binding/world.c.in` around the very header that the trainer steps,
// compiled to WebAssembly. The same seed, index and actions give the same trajectory as in `VecEnv`, bit for bit.
//
//   const world = await World.load(bytes, { frameSkip: 8 });
//   world.reset(seed);                            // writes world.observation
//   const { rewards, ended } = world.step([1]);   // one decision of all agents: frameSkip frames
//   world.state().ball_y;                         // what the header shows, for drawing
//
// All arrays are views of the world's own memory, made once: a step writes them anew, and allocates nothing.

const KINDS = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array, 17: Int8Array, 18: Int16Array, 20: Int32Array, 36: Float32Array };
const MOST = (1n << 64n) - 1n;

export class World {
  // Compiles the bytes of a world's file, an ArrayBuffer or a typed array. Throws an Error of one line where they are
  // none, or where the browser has no WebAssembly.
  static async load(bytes, { frameSkip = 1 } = {}) {
    if (typeof WebAssembly === "undefined") throw new Error("this browser has no WebAssembly, which games need");
    let exports;
    try {
      exports = (await WebAssembly.instantiate(bytes)).instance.exports;
    } catch (error) {
      throw new Error(`the game's file is damaged or none of this program (${error.message})`, { cause: error });
    }
    if (!exports.world || !exports.memory) throw new Error("the file is WebAssembly, but no game of this program");
    return new World(exports, frameSkip);
  }

  constructor(exports, frameSkip) {
    if (!Number.isInteger(frameSkip) || frameSkip < 1 || frameSkip > 1024)
      throw new Error(`frameSkip must be an integer from 1 to 1024, got ${frameSkip}`);
    this.frameSkip = frameSkip;
    this._exports = exports;
    this._read();
    this.reset(0);
  }

  // Reads the table `about`. Its members are named and explained as those of `envs_c.EnvSpec`.
  _read() {
    const { buffer } = this._exports.memory;
    const data = new DataView(buffer);
    let at = this._exports.world();
    const word = () => data.getInt32((at += 4) - 4, true);
    const double = () => data.getFloat64((at += 8) - 8, true);
    const text = (from) => {
      let end = from;
      while (data.getUint8(end)) end++;
      return new TextDecoder().decode(new Uint8Array(buffer, from, end - from));
    };
    const array = (kind, from, count) => new kind(buffer, from, count);
    this.name = text(word());
    this.description = text(word());
    this.agents = word();
    const row = (this.observationSize = word());
    this.observationHigh = word(); // the largest byte of an observation; 0: observations are floats
    const dimensions = word();
    this.observationShape = [...array(Int32Array, word(), dimensions)];
    const components = (this.actionComponents = word());
    const continuous = word() !== 0;
    const sizes = [...array(Int32Array, word(), components)];
    this.actionSizes = continuous ? [] : sizes;
    this.continuousActions = continuous ? components : 0;
    this.maxFrames = word();
    const numFields = word();
    const fields = word();
    const shown = word();
    const { agents } = this;
    this.observation = array(this.observationHigh ? Uint8Array : Float32Array, word(), agents * row);
    this.actions = array(continuous ? Float32Array : Int32Array, word(), agents * components);
    this._result = {
      rewards: array(Float32Array, word(), agents),
      terminals: array(Uint8Array, word(), agents),
      truncations: array(Uint8Array, word(), agents),
      ended: 0, // how many episodes; the arrays below hold those of agents that are terminal or truncated
      scores: array(Float32Array, word(), agents),
      returns: array(Float32Array, word(), agents),
      lengths: array(Int32Array, word(), agents), // in decisions; 0: an agent has come to an idle row
      score: null, // their mean score; null where none has ended
    };
    // The whole state: a copy that is written back here later goes on as it would have, but for `observation`.
    this.bytes = array(Uint8Array, word(), word());
    at += at % 8;
    this.scoreRange = [double(), double()];
    this.solvedScore = double();
    this._fields = [];
    this._state = {};
    for (at = fields; at < fields + 24 * numFields; ) {
      const names = text(word()).split(".");
      const kind = KINDS[word()];
      const [offset, count, each, stride] = [word(), word(), word(), word()];
      const parts = Array.from({ length: each }, (_, k) => array(kind, shown + offset + k * stride, count));
      const holder = names.length > 1 ? (this._state[names[0]] ??= {}) : this._state;
      // One number is read anew for each state, members of structs are put together, and other arrays are views.
      const value = each > 1 ? new kind(each * count) : parts[0];
      if (each > 1 || count > 1) holder[names.at(-1)] = value;
      if (each > 1 || count === 1) this._fields.push({ holder, name: names.at(-1), parts, value, count, each });
    }
  }

  // Begins anew: as instance `index` of a batch with this seed. Both are integers from 0 to 2^64 - 1, Numbers or BigInts.
  reset(seed = 0, index = 0) {
    this._exports.reset(integer("seed", seed), integer("index", index));
    this._result.ended = 0;
    this._result.score = null;
    return this.observation;
  }

  // Takes one decision of all agents, each held for `frameSkip` frames or until the episode ends. `actions` has
  // `actionComponents` numbers for each agent; without it, those that were written into `world.actions` count. Returns
  // always the same object, see `_read`. The observation of an agent that has ended is its next episode's first.
  step(actions) {
    if (actions !== undefined) {
      if (actions.length !== this.actions.length)
        throw new Error(`${this.name} needs ${this.actions.length} actions, got ${actions.length}`);
      this.actions.set(actions);
    }
    const result = this._result;
    const ended = this._exports.step(this.frameSkip);
    if (ended < 0) throw new Error(this._refused(-1 - ended));
    result.ended = ended;
    result.score = null;
    if (ended > 0) {
      let sum = 0;
      for (let agent = 0; agent < this.agents; agent++)
        if (result.terminals[agent] | result.truncations[agent]) sum += result.scores[agent];
      result.score = sum / ended;
    }
    return result;
  }

  // Writes into `actions` what the game's strongest script does as an agent; nothing, where the game has no scripts.
  script(agent) {
    this._exports.script?.(agent);
  }

  // What the game shows of its state, under the names of its header: numbers, and typed arrays that the next call writes
  // anew. With `frame`, from 1 to `frameSkip`: how it was after that many frames of the last step, in which an episode
  // that ended stays at its end. So a page can draw every frame, though the agent decides only now and then.
  state(frame = 0) {
    this._exports.show(frame);
    for (const { holder, name, parts, value, count, each } of this._fields) {
      if (each > 1) for (let k = 0; k < each; k++) value.set(parts[k], k * count);
      else holder[name] = value[0];
    }
    return this._state;
  }

  _refused(index) {
    const component = index % this.actionComponents;
    const takes = this.continuousActions ? "finite numbers" : `0 to ${this.actionSizes[component] - 1}`;
    return `actions[${index}] is ${this.actions[index]}; ${this.name} takes ${takes} there`;
  }
}

function integer(name, value) {
  const exact = typeof value === "bigint" || Number.isSafeInteger(value) ? BigInt(value) : -1n;
  if (exact < 0n || exact > MOST) throw new Error(`${name} must be an integer from 0 to 2^64 - 1, got ${value}`);
  return exact;
}
