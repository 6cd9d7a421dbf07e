// The policy of a checkpoint in the page: the file that `protein.trainer.export` writes, and the network's forward pass
// as `protein.trainer.model.policy` computes it. Outputs are those of the native run to about 1e-6.
//
//   const policy = Policy.parse(bytes);
//   const { actions, values } = policy.act(world.observation);
//   policy.reset(result.terminals, result.truncations);   // forgets what was before, of agents whose episode has ended
//
// Sums are in 64 bits, so that their order does not matter. A layer collects its inputs that are not 0: after a ReLU that
// is half of them, and of what snakes and tiles show few. Then it adds the weights of these. Nothing is allocated in a step.

const FORMAT = "protein-policy-1";
const LARGE_IMAGE = 36; // of `trainer/model/policy.py`: pixels of the shorter side from which strides shrink an image
const CLIP = 10; // of `trainer/normalise.py`: deviations beyond which an observation is cut off,
const LEAST_SPREAD = 1e-6; // and the part of its mean by which a feature must have varied

export class Policy {
  // Reads the bytes of a file, an ArrayBuffer or a typed array. Throws an Error of one line where they are none.
  static parse(bytes) {
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
    const dense = (name, inputs) => new Dense(take(`policy/${name}.weight`), take(`policy/${name}.bias`), inputs);
    const encoder = (name) => {
      const layers = [];
      let shape = about.observationShape;
      if (network.encoder === "cnn") {
        const large = Math.min(...shape.slice(1)) >= LARGE_IMAGE;
        for (const [index, stride] of (large ? [4, 2, 1] : [1, 2]).entries()) {
          const layer = `policy/${name}.convolutions.${index}`;
          layers.push(new Convolution(take(`${layer}.weight`), take(`${layer}.bias`), shape, stride, large ? 0 : 1));
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
    this._hidden = recurrence === "lstm" ? new Dense(take("policy/recurrence.weight_hh"), null, units) : null;
    this.stateSize = { none: 0, mingru: units, lstm: 2 * units }[recurrence];
    this._actionRows = about.continuousActions || about.actionSizes.reduce((a, b) => a + b, 0);
    this._valueRows = network.value_bins || 1;
    const rows = this._actionRows + (network.separate_value ? 0 : this._valueRows);
    if (this._head.outputs !== rows || (this._valueOutput && this._valueOutput.outputs !== this._valueRows))
      throw new Error("its output layer does not fit its actions");
    const wide = Math.max(size, ...[this._encoder, this._valueEncoder ?? []].flat().map((layer) => layer.outputs));
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
      const tanh = this.network.activation === "tanh" && layer instanceof Dense;
      const count = layer.outputs;
      if (tanh) for (let i = 0; i < count; i++) to[i] = Math.tanh(sums[i]);
      else for (let i = 0; i < count; i++) to[i] = sums[i] > 0 ? sums[i] : 0;
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

class Dense {
  constructor({ values, shape }, bias, inputs) {
    [this.outputs, this.inputs] = shape;
    if (shape.length !== 2 || this.inputs !== inputs || (bias && bias.values.length !== this.outputs))
      throw new Error(`a layer has the shape ${shape} for ${inputs} inputs`);
    this._bias = bias?.values ?? new Float32Array(this.outputs);
    this._byInput = turned(values, this.outputs);
    this._sums = new Float64Array(this.outputs);
    this._terms = new Terms(inputs);
  }

  // Returns W x + b of the inputs that begin at `from`.
  apply(x, from = 0) {
    const { outputs, inputs, _sums: sums, _terms: terms } = this;
    terms.count = 0;
    for (let i = 0; i < inputs; i++) if (x[from + i] !== 0) terms.add(x[from + i], i * outputs);
    sums.set(this._bias);
    terms.addTo(sums, this._byInput, outputs);
    return sums;
  }
}

class Convolution {
  constructor(weight, bias, shape, stride, padding) {
    const [out, channels, kernel] = weight.shape;
    if (weight.shape.length !== 4 || channels !== shape[0] || bias.values.length !== out)
      throw new Error(`a convolution has the shape ${weight.shape} over ${shape}`);
    const [, height, width] = shape;
    const across = (length) => Math.floor((length + 2 * padding - kernel) / stride) + 1;
    this.shape = [out, across(height), across(width)];
    this.outputs = out * this.shape[1] * this.shape[2];
    Object.assign(this, { channels, kernel, stride, padding, height, width, _bias: bias.values });
    this._byTap = turned(weight.values, out); // `channels x kernel x kernel x outputs`
    this._at = new Float64Array(out); // of one place
    this._sums = new Float64Array(this.outputs); // channel by channel, as the next layer reads them
    this._terms = new Terms(channels * kernel * kernel);
  }

  apply(x) {
    const { channels, kernel, stride, padding, height, width, _at: at, _sums: sums, _terms: terms } = this;
    const [out, rows, columns] = this.shape;
    const places = rows * columns;
    for (let row = 0, place = 0; row < rows; row++) {
      const top = row * stride - padding;
      for (let column = 0; column < columns; column++, place++) {
        const left = column * stride - padding;
        const [firstY, lastY] = [Math.max(0, -top), Math.min(kernel, height - top)]; // what lies in the image
        const [firstX, lastX] = [Math.max(0, -left), Math.min(kernel, width - left)];
        terms.count = 0;
        for (let channel = 0; channel < channels; channel++)
          for (let y = firstY; y < lastY; y++) {
            const cell = (channel * height + top + y) * width + left;
            const tap = (channel * kernel + y) * kernel;
            for (let x0 = firstX; x0 < lastX; x0++) if (x[cell + x0] !== 0) terms.add(x[cell + x0], (tap + x0) * out);
          }
        at.set(this._bias);
        terms.addTo(at, this._byTap, out);
        for (let o = 0; o < out; o++) sums[o * places + place] = at[o];
      }
    }
    return sums;
  }
}

// Inputs that are not 0, and where the weights of each begin.
class Terms {
  constructor(most) {
    this.count = 0;
    this._factors = new Float64Array(most);
    this._from = new Int32Array(most);
  }

  add(factor, from) {
    this._factors[this.count] = factor;
    this._from[this.count++] = from;
  }

  // sums += the sum of factor * weights[from ..]. Four inputs at a time: a sum is read and written once for them.
  addTo(sums, weights, size) {
    const { count, _factors: factors, _from: from } = this;
    let term = 0;
    for (; term + 4 <= count; term += 4) {
      const [a, b, c, d] = [factors[term], factors[term + 1], factors[term + 2], factors[term + 3]];
      const [i, j, k, l] = [from[term], from[term + 1], from[term + 2], from[term + 3]];
      for (let o = 0; o < size; o++)
        sums[o] += a * weights[i + o] + b * weights[j + o] + c * weights[k + o] + d * weights[l + o];
    }
    for (; term < count; term++) for (let o = 0; o < size; o++) sums[o] += factors[term] * weights[from[term] + o];
  }
}

// Turns `outputs x inputs` into `inputs x outputs`.
function turned(values, outputs) {
  const inputs = values.length / outputs;
  return Float64Array.from(values, (_, at) => values[(at % outputs) * inputs + Math.floor(at / outputs)]);
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
