// Beam search for one sentence: keep the few best hypotheses, and compare finished ones fairly although their lengths differ.

import { softmax } from "./layers.js";

export const lengthPenalty = (length, alpha) => ((5 + length) / 6) ** alpha;

// The `count` best candidates (logProb, row, token) over all rows, best first.
export function candidates(logits, logProbs, count) {
  const best = [];
  logits.forEach((row, r) => {
    const probabilities = softmax(row);
    for (let token = 0; token < row.length; token++) {
      const logProb = logProbs[r] + Math.log(probabilities[token]);
      if (best.length === count && logProb <= best[count - 1].logProb) continue;
      let place = best.length === count ? count - 1 : best.length;
      for (; place > 0 && best[place - 1].logProb < logProb; place--) best[place] = best[place - 1];
      best[place] = { logProb, row: r, token };
    }
  });
  return best;
}

// Returns {best, finished, steps, why}: the best hypothesis {ids, logProb, score}; all finished hypotheses; for each step
// the kept ones {token, parent, logProb, ends, ids}, best first, where `parent` is the index of its prefix in the step
// before; and the reason why the search stopped: "bound", "gave up" or "nothing open".
export function beamSearch(...given) {
  const search = searching(...given);
  for (let next; ; ) if ((next = search.next()).done) return next.value;
}

// The same search, one step at a time. Each step yields the best prefix so far.
export function* searching(model, src, { bos, eos, maxLen, beam = 5, alpha = 1 }) {
  const state = model.start(src);
  let open = [{ ids: [], logProb: 0, row: 0, place: -1 }];
  const [finished, steps] = [[], []];
  let best = null;
  const finish = (ids, logProb, length) => {
    const hypothesis = { ids, logProb, score: logProb / lengthPenalty(length, alpha) };
    finished.push(hypothesis);
    if (!best || hypothesis.score > best.score) best = hypothesis;
  };
  // with fewer than `beam` finished hypotheses, a prefix is judged by the best score it can still reach, later by its
  // present score
  const over = () => {
    if (!open.length) return "nothing open";
    const loses = (length) => best && open[0].logProb / lengthPenalty(length, alpha) <= best.score;
    if (loses(maxLen)) return "bound";
    return finished.length >= beam && loses(open[0].ids.length) ? "gave up" : "";
  };
  for (;;) {
    const last = open.map(({ ids }) => ids.at(-1) ?? bos);
    const found = candidates(model.step(last, state), open.map(({ logProb }) => logProb), 2 * beam);
    const [grown, nodes] = [[], []];
    for (const [rank, { logProb, row, token }] of found.entries()) {
      if (logProb === -Infinity || grown.length === beam) break;
      const ids = [...open[row].ids, token];
      const ends = token === eos;
      if (ends && rank >= beam) continue;
      if (ends) finish(open[row].ids, logProb, ids.length);
      else grown.push({ ids, logProb, row, place: nodes.length });
      nodes.push({ token, parent: open[row].place, logProb, ends, ids });
    }
    steps.push(nodes);
    const full = grown[0]?.ids.length === maxLen; // out of room: unfinished hypotheses count as they are
    if (full) grown.forEach(({ ids, logProb }) => finish(ids, logProb, maxLen));
    open = full ? [] : grown;
    const why = over();
    if (why) return { best, finished, steps, why };
    yield open[0].ids;
    state.select(open.map(({ row }) => row));
  }
}
