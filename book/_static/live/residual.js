// The residual stream over the depth of a stack in which each sublayer adds something independent of it: the formulas
// from chapter 5.3.

// At the input and after each of n sublayers: the size of the stream, its correlation with the input, and how much of the
// final gradient arrives there along the residual path. `variance` is what a sublayer adds when its input has variance 1.
export function overDepth(wiring, n, variance) {
  const grown = { pre: (l) => Math.sqrt(1 + l * variance), post: () => 1, none: (l) => (1 + variance) ** (l / 2) }[wiring];
  const left = (l) => (wiring === "pre" ? 1 / grown(l) : (1 + variance) ** (-l / 2));
  const back = (l) => (wiring === "post" ? (1 + variance) ** (-(n - l) / 2) : 1);
  return Array.from({ length: n + 1 }, (_, l) => ({ size: grown(l), left: left(l), gradient: back(l) }));
}
