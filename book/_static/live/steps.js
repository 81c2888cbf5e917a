// Self-attention for one query, step by step: the formula from chapter 3.1 as loops.

import { softmax } from "./layers.js";

const times = (row, matrix) => matrix[0].map((_, j) => row.reduce((sum, value, i) => sum + value * matrix[i][j], 0));
const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);

// x has shape T C and the three matrices have shape C D; the query is that of position t.
export function oneQuery(t, x, wq, wk, wv) {
  const query = times(x[t], wq);
  const keys = x.map((row) => times(row, wk));
  const values = x.map((row) => times(row, wv));
  const fits = keys.map((key) => dot(query, key));
  const scores = fits.map((fit) => fit / Math.sqrt(query.length));
  const weights = Array.from(softmax(scores));
  const output = values[0].map((_, d) => weights.reduce((sum, weight, s) => sum + weight * values[s][d], 0));
  return { query, fits, scores, weights, output };
}
