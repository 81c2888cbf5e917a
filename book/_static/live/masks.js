// Masks: tables of Booleans with a row for each query and a column for each key. As in the package, True means that the
// query may attend to the key.

import { softmax } from "./layers.js";

const table = (T, S, visible) =>
  Array.from({ length: T }, (_, t) => Array.from({ length: S }, (_, s) => visible(t, s)));

export const everything = (T, S = T) => table(T, S, () => true);

// The T queries are the last of S positions. Each may attend to itself and to earlier positions.
export const causal = (T, S = T) => table(T, S, (t, s) => s <= t + S - T);

// The same, but only to the last `size` of those positions.
export const sliding = (size, T, S = T) => table(T, S, (t, s) => s <= t + S - T && s > t + S - T - size);

// All keys except the padding after the first `length`.
export const padding = (length, T, S = T) => table(T, S, (_, s) => s < length);

export const both = (one, other) => one.map((row, t) => row.map((visible, s) => visible && other[t][s]));

export const equal = (one, other) => one.every((row, t) => row.every((visible, s) => visible === other[t][s]));

// The weights of one row. A fully masked row gets zeros.
export function maskedSoftmax(scores, visible) {
  if (!visible.some(Boolean)) return new Float64Array(scores.length);
  return softmax(scores.map((score, s) => (visible[s] ? score : -Infinity)));
}
