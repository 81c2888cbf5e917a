// Masks: tables of Booleans, a row for each query and a column for each key. True = may attend, as in the package.

import { softmax } from "./layers.js";

const table = (T, S, visible) =>
  Array.from({ length: T }, (_, t) => Array.from({ length: S }, (_, s) => visible(t, s)));

export const everything = (T, S = T) => table(T, S, () => true);

// T queries are the last of S positions: each sees itself and what came before.
export const causal = (T, S = T) => table(T, S, (t, s) => s <= t + S - T);

// The same, but of those only the last `size`.
export const sliding = (size, T, S = T) => table(T, S, (t, s) => s <= t + S - T && s > t + S - T - size);

// All keys but the padding behind the first `length`.
export const padding = (length, T, S = T) => table(T, S, (_, s) => s < length);

export const both = (one, other) => one.map((row, t) => row.map((visible, s) => visible && other[t][s]));

export const equal = (one, other) => one.every((row, t) => row.every((visible, s) => visible === other[t][s]));

// The weights of one row; a row that sees nothing has zeros.
export function maskedSoftmax(scores, visible) {
  if (!visible.some(Boolean)) return new Float64Array(scores.length);
  return softmax(scores.map((score, s) => (visible[s] ? score : -Infinity)));
}
