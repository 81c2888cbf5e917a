// From logits to the next token, and from tokens to a text.

import { softmax } from "./layers.js";

// Ids from the most probable to the least; of equal ones the lower id comes first.
export const ranked = (logits) => [...logits.keys()].sort((a, b) => logits[b] - logits[a] || a - b);

const only = (logits, kept) => Float64Array.from(logits, (logit, id) => (kept(id, logit) ? logit : -Infinity));

// The k largest logits; what ties with the k-th stays. All others become −∞, here and below.
export function keepTopK(logits, k) {
  const least = logits[ranked(logits)[Math.min(k, logits.length) - 1]];
  return only(logits, (_, logit) => logit >= least);
}

// The smallest set of the most probable tokens that reaches p; the best stays in any case.
export function keepTopP(logits, p) {
  if (p === 1) return Float64Array.from(logits);
  const all = softmax(logits);
  const kept = new Set();
  let before = 0; // what comes before the token
  for (const id of ranked(logits)) {
    if (before >= p && kept.size) break;
    kept.add(id);
    before += all[id];
  }
  return only(logits, (id) => kept.has(id));
}

// The tokens with at least `share` of the largest probability.
export function keepMinP(logits, share) {
  const largest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  return only(logits, (_, logit) => logit - largest >= Math.log(share));
}

// What each token is drawn with: logits over the temperature, then top-p. Temperature 0 is greedy: all for the largest
// logit.
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
  return last; // also where rounding left a crumb
}

// Continue `ids` a token at a time; `state` is the one that each was drawn from. A full context is left for its last
// half. `choice()` is asked at each step.
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
