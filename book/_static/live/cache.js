// What a decoder that writes T tokens computes, with a cache and without: the formula from chapter 6.4.

// The operations in the projections, and those in the scores and weighted sums, of an attention layer of width C.
export function work(T, C, cached) {
  if (cached) return [8 * T * C ** 2, 2 * T * (T + 1) * C];
  return [4 * T * (T + 1) * C ** 2, (2 * T * (T + 1) * (2 * T + 1) * C) / 3];
}

// The rows of K and V together that are computed in step t, and those in all the steps so far.
export const rows = (t, cached) => (cached ? [2, 2 * t] : [2 * t, t * (t + 1)]);
