// The logit lens: what a model would say at each height, where the last height is what it says.

import { softmax } from "./layers.js";
import { ranked } from "./sampling.js";

// The entropy of what logits say, in bits.
export const bits = (logits) => softmax(logits).reduce((sum, p) => (p ? sum - p * Math.log2(p) : sum), 0);

// logits: N V, a row for each height. `top` has the most probable tokens of the last one, and `token` in any case, each
// with its probability at each height; `lens` the first choice and the entropy of each height; `since` is the height
// from which the final first choice is there, and stays.
export function opened(logits, token, count = 10) {
  const chances = logits.map((row) => softmax(row));
  const firsts = logits.map((row) => ranked(row)[0]);
  const order = ranked(logits.at(-1));
  const shown = new Set([...order.slice(0, count), token]);
  return {
    top: [...shown].map((id) => ({ id, chances: chances.map((row) => row[id]) })),
    lens: logits.map((row, n) => ({ first: firsts[n], bits: bits(row) })),
    rank: order.indexOf(token) + 1,
    since: firsts.findLastIndex((first) => first !== order[0]) + 1,
  };
}
