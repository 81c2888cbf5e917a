// The logit lens: what a model would predict at each depth (`heights`). At the last depth this is the model's own
// prediction.

import { softmax } from "./layers.js";
import { ranked } from "./sampling.js";

// The entropy of the distribution that logits give, in bits.
export const bits = (logits) => softmax(logits).reduce((sum, p) => (p ? sum - p * Math.log2(p) : sum), 0);

// The logits have shape N V, with a row for each depth. `top` lists the most probable tokens of the last row, and `token`
// in any case, each with its probability at every depth. `lens` has the first choice and the entropy at each depth.
// `since` is the depth from which on the first choice is the final one.
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
