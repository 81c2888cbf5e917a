// From logits to the next token, and from tokens to a text.

import { softmax } from "./layers.js";

// What each token is drawn with: logits over the temperature, then the smallest set of the most probable tokens that
// reaches `topP`. Temperature 0 is greedy: all for the largest logit.
export function probabilities(logits, { temperature = 1, topP = 1 }) {
  const largest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  if (temperature === 0) {
    const chosen = logits.indexOf(largest);
    return Float64Array.from(logits, (_, id) => (id === chosen ? 1 : 0));
  }
  const all = softmax(Float64Array.from(logits, (logit) => (logit - largest) / temperature));
  if (topP === 1) return all;
  const order = [...all.keys()].sort((a, b) => all[b] - all[a] || a - b);
  const kept = new Float64Array(all.length);
  let before = 0; // what comes before the token; the best stays in any case
  for (const id of order) {
    if (before >= topP && before > 0) break;
    kept[id] = all[id];
    before += all[id];
  }
  return kept.map((value) => value / before);
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

// Continue `ids` a token at a time. A full context is left for its last half. `choice()` is asked at each step.
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
    yield token;
  }
}
