// From logits to the next token, and from tokens to a text.

import { softmax } from "./layers.js";

// Ids from the most to the least probable. If two are equal, the lower id comes first.
export const ranked = (logits) => [...logits.keys()].sort((a, b) => logits[b] - logits[a] || a - b);

const only = (logits, kept) => Float64Array.from(logits, (logit, id) => (kept(id, logit) ? logit : -Infinity));

// Keep the k largest logits and those equal to the k-th. Here and below, all other logits become −∞.
export function keepTopK(logits, k) {
  const least = logits[ranked(logits)[Math.min(k, logits.length) - 1]];
  return only(logits, (_, logit) => logit >= least);
}

// Keep the smallest set of most probable tokens whose probability reaches p; the best token is always kept.
export function keepTopP(logits, p) {
  if (p === 1) return Float64Array.from(logits);
  const all = softmax(logits);
  const kept = new Set();
  let before = 0; // the probability of the tokens before this one
  for (const id of ranked(logits)) {
    if (before >= p && kept.size) break;
    kept.add(id);
    before += all[id];
  }
  return only(logits, (id) => kept.has(id));
}

// Keep the tokens with at least `share` times the largest probability.
export function keepMinP(logits, share) {
  const largest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  return only(logits, (_, logit) => logit - largest >= Math.log(share));
}

// The probability with which each token is drawn: divide the logits by the temperature, then apply top-p. Temperature 0 is
// greedy: the largest logit gets everything.
export function probabilities(logits, { temperature = 1, topP = 1 }) {
  const largest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  if (temperature === 0) {
    const chosen = logits.indexOf(largest);
    return Float64Array.from(logits, (_, id) => (id === chosen ? 1 : 0));
  }
  return softmax(keepTopP(Float64Array.from(logits, (logit) => (logit - largest) / temperature), topP));
}

export function nextToken(logits, choice, random = Math.random) {
  const chances = probabilities(logits, choice);
  let left = random();
  let last = 0;
  for (const [id, chance] of chances.entries()) {
    if (chance === 0) continue;
    last = id;
    left -= chance;
    if (left < 0) break;
  }
  return last; // also if rounding leaves a small remainder
}

// Continue `ids` one token at a time; each comes with the `state` that it was drawn from. A full context is replaced by its
// last half. `choice()` is called at each step.
export function* stream(model, ids, { maxNew, maxLen, choice, random }) {
  const room = Math.min(ids.length + maxNew, maxLen);
  const all = [...ids];
  let [fresh, held, state] = [all, room, null];
  for (let n = 0; n < maxNew; n++) {
    if (held === room) {
      fresh = all.length < room ? [...all] : all.slice(-Math.max(1, Math.floor(room / 2)));
      [held, state] = [0, model.start()];
    }
    let logits;
    for (const id of fresh) [logits] = model.step([id], state);
    held += fresh.length;
    const token = nextToken(logits, choice(), random);
    all.push(token);
    fresh = [token];
    yield { token, state };
  }
}
