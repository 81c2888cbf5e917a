// BLEU of one translation: clipped n-grams, precisions and the brevity penalty, the formulas from chapter 8.3.

export const split = (text) => text.split(/\s+/).filter(Boolean);

const ngrams = (words, n) => words.slice(n - 1).map((_, start) => words.slice(start, start + n).join(" "));

// For each order from 1 to 4, whether each n-gram of the translation is right, clipped or wrong. An n-gram is clipped if
// the reference contains it, but less often than the translation has had it so far.
export function bleu(said, wanted) {
  const orders = [1, 2, 3, 4].map((n) => {
    const left = new Map();
    for (const gram of ngrams(wanted, n)) left.set(gram, (left.get(gram) ?? 0) + 1);
    const states = ngrams(said, n).map((gram) => {
      if (!left.has(gram)) return "wrong";
      left.set(gram, left.get(gram) - 1);
      return left.get(gram) < 0 ? "clipped" : "right";
    });
    const right = states.filter((state) => state === "right").length;
    return { states, right, precision: right && right / states.length };
  });
  const brevity = said.length && Math.min(1, Math.exp(1 - wanted.length / said.length));
  const product = orders.reduce((all, { precision }) => all * precision, 1);
  return { orders, brevity, score: 100 * brevity * product ** (1 / 4) };
}
