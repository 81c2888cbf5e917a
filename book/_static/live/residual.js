// The stream over the depth of a stack, where each sublayer adds what has nothing to do with it: the formulas of chapter 5.3.

// After each of n sublayers, the input first: the size of the stream, the correlation with the input, and how much of
// the gradient at the end arrives here along the path that avoids every sublayer. `variance`: added, for 1 that is read.
export function overDepth(wiring, n, variance) {
  const grown = { pre: (l) => Math.sqrt(1 + l * variance), post: () => 1, none: (l) => (1 + variance) ** (l / 2) }[wiring];
  const left = (l) => (wiring === "pre" ? 1 / grown(l) : (1 + variance) ** (-l / 2));
  const back = (l) => (wiring === "post" ? (1 + variance) ** (-(n - l) / 2) : 1);
  return Array.from({ length: n + 1 }, (_, l) => ({ size: grown(l), left: left(l), gradient: back(l) }));
}
