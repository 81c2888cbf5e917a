// Online softmax: one query reads its keys a tile at a time, as chapter 3.4 derives it.

// What stands after each tile: the largest score m, the sum `total` of exponentials relative to it, the sum r of values
// weighted by them, the output r / total, and the factor c that turned the sums before the tile.
export function onlineSoftmax(scores, values, block) {
  let [m, total, r] = [-Infinity, 0, 0];
  const steps = [];
  for (let from = 0; from < scores.length; from += block) {
    const tile = scores.slice(from, from + block);
    const higher = Math.max(m, ...tile);
    const c = Math.exp(m - higher);
    [m, total, r] = [higher, c * total, c * r];
    tile.forEach((score, s) => {
      const e = Math.exp(score - m);
      total += e;
      r += e * values[from + s];
    });
    steps.push({ from, to: from + tile.length, m, c, total, r, out: r / total });
  }
  return steps;
}
