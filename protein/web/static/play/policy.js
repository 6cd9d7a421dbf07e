// The policy of a checkpoint in the page: the file that `protein.trainer.export` writes, and the network's forward pass
// as `protein.trainer.model.policy` computes it. Outputs are those of the native run to about 1e-6.
//
//   const policy = Policy.parse(bytes);
//   const { actions, values } = policy.act(world.observation);
//   policy.reset(result.terminals, result.truncations);   // forgets what was before, of agents whose episode has ended
//
// Layers are computed by WebAssembly with SIMD, protein/web/layer.c. Nothing is allocated in a step.

import { LAYER } from "./layer.js";

const FORMAT = "protein-policy-1";
const LARGE_IMAGE = 36; // of `trainer/model/policy.py`: pixels of the shorter side from which strides shrink an image
const CLIP = 10; // of `trainer/normalise.py`: deviations beyond which an observation is cut off,
const LEAST_SPREAD = 1e-6; // and the part of its mean by which a feature must have varied

export class Policy {
  // Reads the bytes of a file, an ArrayBuffer or a typed array. Throws an Error of one line where they are none.
  static parse(bytes) {
    module();
    const data = ArrayBuffer.isView(bytes)
      ? new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
      : new DataView(bytes);
    let head, about;
    try {
      const length = Number(data.getBigUint64(0, true));
      head = JSON.parse(new TextDecoder().decode(new Uint8Array(data.buffer, data.byteOffset + 8, length)));
      about = JSON.parse(head.__metadata__?.policy ?? "{}");
      delete head.__metadata__;
      if (about.format === FORMAT)
        return new Policy(about, new Map(Object.keys(head).map((name) => [name, numbers(data, 8 + length, head[name])])));
    } catch (error) {
      throw new Error(`the policy's file is damaged or none of this program (${error.message})`, { cause: error });
    }
    throw new Error(`the file is no policy of this version, whose format is ${FORMAT}`);
  }

  constructor(about, weights) {
    Object.assign(this, about); // env, frameSkip, greedy, steps, elapsed_seconds, score, and the shapes
    const { network } = about;
    const size = (this.observationSize = product(about.observationShape));
    const take = (name) => {
      if (!weights.has(name)) throw new Error(`it lacks ${name}`);
      return weights.get(name);
    };
    const wasm = new WebAssembly.Instance(module()).exports; // of this policy: its memory goes when the policy goes
    const made = [];
    const layer = (...given) => made[made.push(new Layer(wasm, ...given)) - 1];
    const dense = (name, inputs) => layer(take(`policy/${name}.weight`), take(`policy/${name}.bias`), [inputs]);
    const encoder = (name) => {
      const layers = [];
      let shape = about.observationShape;
      if (network.encoder === "cnn") {
        const large = Math.min(...shape.slice(1)) >= LARGE_IMAGE;
        for (const [index, stride] of (large ? [4, 2, 1] : [1, 2]).entries()) {
          const place = `policy/${name}.convolutions.${index}`;
          layers.push(layer(take(`${place}.weight`), take(`${place}.bias`), shape, stride, large ? 0 : 1));
          shape = layers.at(-1).shape;
        }
      }
      const under = network.encoder === "cnn" ? `${name}.mlp` : name;
      for (let index = 0; index < network.num_layers; index++)
        layers.push(dense(`${under}.layers.${index}`, layers.at(-1)?.outputs ?? size));
      return layers;
    };
    if (weights.has("scaling/observations.count")) this._normalise(weights);
    this._encoder = encoder("encoder");
    const units = (this._units = this._encoder.at(-1).outputs);
    this._head = dense("head", units);
    this._valueEncoder = network.separate_value ? encoder("value_encoder") : null;
    this._valueOutput = network.separate_value ? dense("value_output", units) : null;
    this._logStd = about.continuousActions ? take("policy/log_std").values : null;
    const { recurrence } = network;
    this._input = recurrence === "none" ? null : dense("recurrence.input", units);
    this._hidden = recurrence === "lstm" ? layer(take("policy/recurrence.weight_hh"), null, [units]) : null;
    this.stateSize = { none: 0, mingru: units, lstm: 2 * units }[recurrence];
    this._actionRows = about.continuousActions || about.actionSizes.reduce((a, b) => a + b, 0);
    this._valueRows = network.value_bins || 1;
    const rows = this._actionRows + (network.separate_value ? 0 : this._valueRows);
    if (this._head.outputs !== rows || (this._valueOutput && this._valueOutput.outputs !== this._valueRows))
      throw new Error("its output layer does not fit its actions");
    const wide = Math.max(size, ...[this._encoder, this._valueEncoder ?? []].flat().map((layer) => layer.outputs));
    for (const one of made) one.see(wasm.memory.buffer);
    this._seen = new Float32Array(size);
    this._one = new Float32Array(wide);
    this._two = new Float32Array(wide);
    this._gates = this._input && new Float32Array(this._input.outputs);
    this._own = this._hidden && new Float32Array(this._hidden.outputs);
    this._support = symexpGrid(network.value_bins, network.value_limit);
    this._random = generator(0);
    this._sized(0);
  }

  // The factors of `Normalizer`, of the moments that it saves.
  _normalise(weights) {
    const moments = ["count", "mean", "squares"].map((name) => weights.get(`scaling/observations.${name}`)?.values);
    const [count, mean, squares] = moments;
    if (mean?.length !== this.observationSize || squares?.length !== this.observationSize)
      throw new Error("its observations' moments are missing");
    this._mean = Float32Array.from(mean);
    this._scale = Float32Array.from(squares, (sum, i) => {
      const deviation = Math.sqrt(sum / Math.max(count[0], 1));
      return deviation > LEAST_SPREAD * Math.abs(mean[i]) ? 1 / deviation : 1;
    });
  }

  // Throws an Error where the policy was not trained on a world's game, or in another shape.
  require(world) {
    const shapes = [this, world].map((one) =>
      JSON.stringify([one.env ?? one.name, one.observationShape, one.actionSizes, one.continuousActions]),
    );
    if (shapes[0] !== shapes[1]) throw new Error(`the policy is of ${shapes[0]}, the game is ${shapes[1]}`);
  }

  // Seeds the draws of actions. They are not torch's: the same distribution, other numbers.
  seed(seed) {
    this._random = generator(seed);
  }

  // Forgets what was seen before: of all agents, or of those whose episode has ended.
  reset(terminals, truncations) {
    if (!this.stateSize) return;
    if (!terminals) this._state.fill(0);
    else
      for (let agent = 0; agent < this.agents; agent++)
        if (terminals[agent] | truncations[agent])
          this._state.fill(0, agent * this.stateSize, (agent + 1) * this.stateSize);
  }

  // Acts for as many agents as `observation` has rows. Returns always the same object, of arrays with a row per agent:
  // `actions`, as `World.step` takes them; `values`; `probabilities` of all choices of a discrete action, one component
  // after the other; `outputs`, the rows of the network: logits, or means and log deviations, and then the value's.
  act(observation, { greedy = this.greedy } = {}) {
    const size = this.observationSize;
    const agents = observation.length / size;
    if (agents !== this.agents) this._sized(agents);
    const result = this._result;
    for (let agent = 0; agent < agents; agent++) {
      this._look(observation, agent * size);
      const at = agent * this.rows;
      this._forward(agent, result.outputs, at);
      result.values[agent] = this._value(result.outputs, at + this.rows - this._valueRows);
      if (this.continuousActions) this._chooseNumbers(agent, result.outputs, at, greedy);
      else this._choose(agent, result.outputs, at, greedy);
    }
    return result;
  }

  _sized(agents) {
    if (!Number.isInteger(agents)) throw new Error(`an observation has ${this.observationSize} numbers per agent`);
    this.agents = agents;
    this.rows = this._actionRows * (this.continuousActions ? 2 : 1) + this._valueRows;
    this._state = new Float32Array(agents * this.stateSize);
    const components = this.continuousActions || this.actionSizes.length;
    this._result = {
      actions: new (this.continuousActions ? Float32Array : Int32Array)(agents * components),
      values: new Float32Array(agents),
      probabilities: new Float32Array(this.continuousActions ? 0 : agents * this._actionRows),
      outputs: new Float32Array(agents * this.rows),
    };
  }

  _look(observation, from) {
    const seen = this._seen;
    if (this._mean) {
      const { _mean, _scale } = this;
      for (let i = 0; i < seen.length; i++)
        seen[i] = Math.min(Math.max(Math.fround(observation[from + i] - _mean[i]) * _scale[i], -CLIP), CLIP);
    } else {
      const scale = this.observationHigh ? 1 / this.observationHigh : 1;
      for (let i = 0; i < seen.length; i++) seen[i] = observation[from + i] * scale;
    }
  }

  // Writes one agent's outputs, from what it sees and its state, which is updated.
  _forward(agent, outputs, at) {
    const { _actionRows: rows, _valueRows, continuousActions } = this;
    const sums = this._head.apply(this._remember(agent, this._encode(this._encoder)));
    for (let row = 0; row < rows; row++) outputs[at++] = sums[row];
    for (let row = 0; row < continuousActions; row++) outputs[at++] = this._logStd[row];
    if (!this._valueEncoder) for (let row = 0; row < _valueRows; row++) outputs[at++] = sums[rows + row];
    else {
      const own = this._valueOutput.apply(this._encode(this._valueEncoder));
      for (let row = 0; row < _valueRows; row++) outputs[at++] = own[row];
    }
  }

  _encode(layers) {
    let from = this._seen;
    let to = this._one;
    for (const layer of layers) {
      const sums = layer.apply(from);
      const tanh = this.network.activation === "tanh" && layer.dense;
      const count = layer.outputs;
      if (tanh) for (let i = 0; i < count; i++) to[i] = Math.tanh(sums[i]);
      else for (let i = 0; i < count; i++) to[i] = Math.max(sums[i], 0);
      from = to;
      to = to === this._one ? this._two : this._one;
    }
    return from;
  }

  _remember(agent, hidden) {
    const { _units: units, _state: state, _gates: gates, stateSize } = this;
    if (!stateSize) return hidden;
    const h = agent * stateSize;
    const c = h + units;
    gates.set(this._input.apply(hidden));
    if (this._hidden) {
      const sums = this._hidden.apply(state, h);
      for (let j = 0; j < 4 * units; j++) gates[j] += sums[j];
      for (let j = 0; j < units; j++) {
        const cell = sigmoid(gates[units + j]) * state[c + j] + sigmoid(gates[j]) * Math.tanh(gates[2 * units + j]);
        state[c + j] = cell;
        hidden[j] = state[h + j] = sigmoid(gates[3 * units + j]) * Math.tanh(cell);
      }
    } else {
      for (let j = 0; j < units; j++) {
        const z = sigmoid(gates[j]);
        const x = gates[units + j];
        state[h + j] = (1 - z) * state[h + j] + z * (x >= 0 ? x + 0.5 : sigmoid(x));
        hidden[j] += state[h + j];
      }
    }
    return hidden;
  }

  _value(outputs, first) {
    const bins = this._valueRows;
    if (bins === 1) return outputs[first];
    let most = -Infinity;
    for (let bin = 0; bin < bins; bin++) most = Math.max(most, outputs[first + bin]);
    let sum = 0;
    let mean = 0;
    for (let bin = 0; bin < bins; bin++) {
      const weight = Math.exp(outputs[first + bin] - most);
      sum += weight;
      mean += weight * this._support[bin];
    }
    return mean / sum;
  }

  _choose(agent, outputs, at, greedy) {
    const { actions, probabilities } = this._result;
    const components = this.actionSizes.length;
    let to = agent * this._actionRows;
    for (let component = 0; component < components; component++) {
      const choices = this.actionSizes[component];
      let best = 0;
      for (let k = 1; k < choices; k++) if (outputs[at + k] > outputs[at + best]) best = k;
      let sum = 0;
      for (let k = 0; k < choices; k++) sum += probabilities[to + k] = Math.exp(outputs[at + k] - outputs[at + best]);
      let left = this._random() * sum;
      let chosen = greedy ? best : -1;
      for (let k = 0; k < choices; k++) {
        if (chosen < 0 && (left -= probabilities[to + k]) < 0) chosen = k;
        probabilities[to + k] /= sum;
      }
      actions[agent * components + component] = chosen < 0 ? best : chosen; // the sum's rounding may leave a rest
      at += choices;
      to += choices;
    }
  }

  _chooseNumbers(agent, outputs, at, greedy) {
    const count = this.continuousActions;
    for (let k = 0; k < count; k++) {
      const noise = greedy ? 0 : Math.sqrt(-2 * Math.log(1 - this._random())) * Math.cos(2 * Math.PI * this._random());
      const number = outputs[at + k] + Math.exp(outputs[at + count + k]) * noise;
      this._result.actions[agent * count + k] = Number.isFinite(number) ? number : 0;
    }
  }
}

// A convolution over `channels x height x width`, or a dense layer over `channels`, which is one over a single place.
class Layer {
  constructor(wasm, { values, shape }, bias, image, stride = 1, padding = 0) {
    const [channels, height = 1, width = 1] = image; // without sizes: a dense layer
    const [out, inputs, kernel = 1] = shape;
    this.dense = shape.length === 2;
    if (shape.length !== (image.length === 1 ? 2 : 4) || inputs !== channels || (bias && bias.values.length !== out))
      throw new Error(`a layer has the shape ${shape} over ${image}`);
    const across = (length) => Math.floor((length + 2 * padding - kernel) / stride) + 1;
    const [rows, columns] = [across(height), across(width)];
    this.shape = [out, rows, columns];
    this.inputs = channels * height * width;
    this.outputs = out * rows * columns;
    const taps = channels * kernel * kernel;
    const sizes = [this.inputs, this.outputs, values.length, out, taps + 1, taps + 1];
    this._places = sizes.map((size) => wasm.room(4 * size));
    this._sizes = [channels, height, width, out, rows, columns, kernel, stride, padding];
    this._wasm = wasm;
    // The weights of an input lie one after the other: `channels x kernel x kernel x out`.
    this._weights = new Float32Array(values.length);
    for (let o = 0; o < out; o++) for (let tap = 0; tap < taps; tap++) this._weights[tap * out + o] = values[o * taps + tap];
    this._bias = bias?.values ?? new Float32Array(out);
  }

  // Fills the memory, when it has its final size.
  see(buffer) {
    const [x, y, weights, bias] = this._places;
    this._x = new Float32Array(buffer, x, this.inputs);
    this._y = new Float32Array(buffer, y, this.outputs);
    new Float32Array(buffer, weights, this._weights.length).set(this._weights);
    new Float32Array(buffer, bias, this._bias.length).set(this._bias);
    this._weights = this._bias = null;
  }

  // Returns W x + b of the inputs that begin at `from`, channel by channel; the same array each time.
  apply(values, from = 0) {
    const { inputs, _x: x, _places: p, _sizes: s } = this;
    for (let i = 0; i < inputs; i++) x[i] = values[from + i];
    this._wasm.layer(p[0], p[1], p[2], p[3], p[4], p[5], s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8]);
    return this._y;
  }
}

let compiled = null;

// Throws an Error of one line where the browser has no WebAssembly with SIMD, which is of 2021 to 2023.
function module() {
  if (!globalThis.WebAssembly) throw new Error("this browser has no WebAssembly, which games need");
  try {
    return (compiled ??= new WebAssembly.Module(Uint8Array.from(atob(LAYER), (sign) => sign.charCodeAt(0))));
  } catch (error) {
    throw new Error(`this browser cannot compute a policy (${error.message})`, { cause: error });
  }
}

function sigmoid(x) {
  return 1 / (1 + Math.exp(-x));
}

// Returns a tensor of a safetensors file.
function numbers(data, start, { dtype, shape, data_offsets: [from, to] }) {
  if (start + to > data.byteLength) throw new Error("it is cut short");
  const bytes = data.buffer.slice(data.byteOffset + start + from, data.byteOffset + start + to);
  const kind = { F16: Uint16Array, F32: Float32Array, F64: Float64Array }[dtype];
  const values = dtype === "F16" ? Float32Array.from(new kind(bytes), halfToNumber) : new kind(bytes);
  if (values.length !== product(shape)) throw new Error("a tensor has another size than its shape");
  return { values, shape };
}

function product(sizes) {
  return sizes.reduce((a, b) => a * b, 1);
}

function halfToNumber(bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = (bits & 1023) / 1024;
  const size = exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction;
  return bits & 32768 ? -size : size;
}

// The returns that the bins of a distributional value stand for: see `CategoricalValue`.
function symexpGrid(bins, limit) {
  const half = Math.log1p(limit);
  return Float32Array.from({ length: bins }, (_, bin) => {
    const at = -half + (2 * half * bin) / (bins - 1);
    return Math.sign(at) * Math.expm1(Math.abs(at));
  });
}

// Uniform numbers in [0, 1) of a seed: a counter, whose bits are mixed (SplitMix's mixing function in 32 bits).
function generator(seed) {
  let state = Number(BigInt.asUintN(32, BigInt(seed)));
  return () => {
    state = (state + 0x9e3779b9) | 0;
    let z = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return ((z ^ (z >>> 15)) >>> 0) / 4294967296;
  };
}
