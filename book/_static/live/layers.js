// The parts of the two kinds of model, each for one position. A vector is a Float32Array, or a Float64Array if the weights
// are; sums are computed in double precision.

export function dot(a, from, b, start, size) {
  let one = 0, two = 0, three = 0, four = 0; // four independent sums, so that the processor doesn't have to wait for each addition
  let i = 0;
  for (; i + 3 < size; i += 4) {
    one += a[from + i] * b[start + i];
    two += a[from + i + 1] * b[start + i + 1];
    three += a[from + i + 2] * b[start + i + 2];
    four += a[from + i + 3] * b[start + i + 3];
  }
  for (; i < size; i++) one += a[from + i] * b[start + i];
  return one + two + (three + four);
}

// x W + b, where W is stored with one row for each output
export function linear({ weight, bias }, x) {
  const out = new x.constructor(weight.shape[0]);
  for (let row = 0; row < out.length; row++) {
    out[row] = dot(weight.values, row * x.length, x, 0, x.length) + (bias ? bias.values[row] : 0);
  }
  return out;
}

export const add = (x, y) => x.map((value, i) => value + y[i]);
const mean = (x) => x.reduce((sum, value) => sum + value, 0) / x.length;

export function layerNorm({ weight, bias }, x, eps = 1e-5) {
  const centre = mean(x);
  const spread = mean(Float64Array.from(x, (value) => (value - centre) ** 2));
  const scale = 1 / Math.sqrt(spread + eps);
  return x.map((value, i) => (value - centre) * scale * weight.values[i] + bias.values[i]);
}

export function rmsNorm({ weight }, x, eps) {
  const scale = 1 / Math.sqrt(mean(Float64Array.from(x, (value) => value ** 2)) + eps);
  return x.map((value, i) => value * scale * weight.values[i]);
}

export function softmax(scores, temperature = 1) {
  let largest = -Infinity;
  let sum = 0;
  for (let i = 0; i < scores.length; i++) largest = Math.max(largest, scores[i]);
  const out = new Float64Array(scores.length);
  for (let i = 0; i < out.length; i++) sum += out[i] = Math.exp((scores[i] - largest) / temperature);
  for (let i = 0; i < out.length; i++) out[i] /= sum;
  return out;
}

// The largest derivative of a weight with respect to a score: the largest entries of w(δ − w) are on the diagonal.
export const steepest = (weights) => weights.reduce((most, weight) => Math.max(most, weight * (1 - weight)), 0);

// The row of the embedding table for `id`, scaled.
export function embed({ weight }, id, scale = 1) {
  const size = weight.shape[1];
  return weight.values.slice(id * size, (id + 1) * size).map((value) => value * scale);
}

// Attention for one query: softmax(q·k/√D)·v in each head. Query head h uses key/value head h // (H/K).
// `weights` holds, for each head, the weight of each key.
export function attend(q, { keys, values }, nHeads, nKvHeads = nHeads) {
  const D = q.length / nHeads;
  const out = new Float64Array(q.length);
  const weights = [];
  for (let head = 0; head < nHeads; head++) {
    const own = head * D;
    const theirs = Math.floor(head / (nHeads / nKvHeads)) * D;
    const row = softmax(keys.map((k) => dot(q, own, k, theirs, D) / Math.sqrt(D)));
    values.forEach((v, s) => {
      for (let d = 0; d < D; d++) out[own + d] += row[s] * v[theirs + d];
    });
    weights.push(row);
  }
  return { out: q.constructor.from(out), weights };
}

// down(relu(up(x)))
export function feedForward({ up_proj, down_proj }, x) {
  return linear(down_proj, linear(up_proj, x).map((value) => Math.max(0, value)));
}

// down(silu(gate(x)) · up(x))
export function gatedFeedForward({ gate_proj, up_proj, down_proj }, x) {
  const up = linear(up_proj, x);
  const hidden = linear(gate_proj, x).map((value, i) => (value / (1 + Math.exp(-value))) * up[i]);
  return linear(down_proj, hidden);
}

// The sines and cosines of a position, in turn, rounded as in the package, or not at all if `round` is the identity
export function sinusoid(pos, size, round = Math.fround) {
  return Float64Array.from({ length: size }, (_, i) => {
    const angle = round(pos * round(Math.exp(round((i - (i % 2)) * round(-Math.log(10_000) / size)))));
    return round(i % 2 ? Math.cos(angle) : Math.sin(angle));
  });
}

// Rotary positions: the planes (i, i + D/2) of each head, turned by pos · base^(-2i/D)
export function rotate(x, pos, D, base) {
  const half = D / 2;
  return x.map((value, at) => {
    const i = at % D;
    const angle = pos * base ** ((-2 * (i % half)) / D);
    const partner = i < half ? -x[at + half] : x[at - half];
    return value * Math.cos(angle) + partner * Math.sin(angle);
  });
}

// What a model remembers while it decodes: the keys and values of each row and layer. `memory` holds those of the source.
export class State {
  constructor(nLayers, memory = null) {
    this.memory = memory;
    this.length = 0;
    this.caches = [Array.from({ length: nLayers }, () => ({ keys: [], values: [] }))];
  }

  // Keep, drop and repeat rows. The copies share their vectors, but not their lists.
  select(rows) {
    const copy = ({ keys, values }) => ({ keys: [...keys], values: [...values] });
    this.caches = rows.map((row) => this.caches[row].map(copy));
  }
}
