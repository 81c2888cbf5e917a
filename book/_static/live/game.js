// Rock, paper, scissors, learned by one layer of self-attention: the game of chapter 3.1, its error and its gradients.

import { softmax } from "./layers.js";

export const NAMES = ["rock", "paper", "scissors"];
const D = 3; // size of the queries and keys; a value is a single number

// A normally distributed number, computed from two uniform ones (Box and Muller).
const normal = (random) => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
const matrix = (rows, columns, make) => Array.from({ length: rows }, () => Array.from({ length: columns }, make));

// A round: three words in random order, each with its kind and a number. The wanted output of a word is the number of the
// word that beats it.
export function round(random) {
  const order = [0, 1, 2];
  for (let i = 2; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  const numbers = order.map(() => normal(random));
  const x = order.map((kind, t) => [0, 1, 2].map((place) => Number(place === kind)).concat(numbers[t]));
  return { x, wanted: order.map((kind) => numbers[order.indexOf((kind + 1) % 3)]) };
}

// The initial weights: {q, k: 4 x 3, v: 4 x 1}. With `shared`, queries and keys use the same matrix.
export function first(random, shared) {
  const q = matrix(4, D, () => normal(random) / 2);
  const k = matrix(4, D, () => normal(random) / 2);
  return { q, k: shared ? q : k, v: matrix(4, 1, () => normal(random) / 2) };
}

const project = (x, w) => x.map((row) => w[0].map((_, j) => row.reduce((sum, value, i) => sum + value * w[i][j], 0)));

// The attention weights of each query; below, the error of some rounds and its gradients.
export function attention(x, { q: wq, k: wk }) {
  const [q, k] = [project(x, wq), project(x, wk)];
  return q.map((row) => Array.from(softmax(k.map((key) => row.reduce((sum, n, d) => sum + n * key[d], 0) / Math.sqrt(D)))));
}
export function gradients(weights, rounds) {
  const found = { q: matrix(4, D, () => 0), k: matrix(4, D, () => 0), v: matrix(4, 1, () => 0) };
  let error = 0;
  const count = rounds.length * 3;
  for (const { x, wanted } of rounds) {
    const [q, k, v, w] = [project(x, weights.q), project(x, weights.k), project(x, weights.v), attention(x, weights)];
    w.forEach((row, t) => {
      const miss = row.reduce((sum, share, s) => sum + share * v[s][0], 0) - wanted[t];
      error += miss ** 2 / count;
      const out = (2 * miss) / count; // the derivative of the error with respect to output t
      const mean = row.reduce((sum, share, s) => sum + share * v[s][0], 0);
      row.forEach((share, s) => {
        const score = (out * share * (v[s][0] - mean)) / Math.sqrt(D); // the derivative with respect to q·k
        for (let c = 0; c < 4; c++) {
          found.v[c][0] += out * share * x[s][c];
          for (let d = 0; d < D; d++) {
            found.q[c][d] += score * k[s][d] * x[t][c];
            found.k[c][d] += score * q[t][d] * x[s][c];
          }
        }
      });
    });
  }
  return { error, ...found };
}

// One step of gradient descent, in place. Returns the error before the step.
export function descend(weights, rounds, rate) {
  const { error, ...found } = gradients(weights, rounds);
  for (const name of ["q", "k", "v"]) {
    weights[name].forEach((row, i) => row.forEach((_, j) => (row[j] -= rate * found[name][i][j])));
  }
  return error; // if q and k are the same matrix, both gradients were subtracted from it
}

// The attention weights of rock, paper and scissors, as the rows of a 3 x 3 table.
export const looks = (weights) => attention(NAMES.map((_, kind) => [0, 1, 2, 3].map((c) => Number(c === kind))), weights);
