// The score of a query and a key after their rotation, plane by plane.

import { rotate } from "./layers.js";

// For each plane i, which consists of the coordinates i and i + D/2: its frequency, its two hands, and the amount that it
// adds to q·k.
export function planes(q, t, k, s, base = 10_000) {
  const [D, half] = [q.length, q.length / 2];
  const [turnedQ, turnedK] = [rotate(q, t, D, base), rotate(k, s, D, base)];
  return Array.from({ length: half }, (_, i) => {
    const [handQ, handK] = [turnedQ, turnedK].map((x) => [x[i], x[i + half]]);
    return { frequency: base ** ((-2 * i) / D), q: handQ, k: handK, adds: handQ[0] * handK[0] + handQ[1] * handK[1] };
  });
}

export const score = (...asked) => planes(...asked).reduce((sum, { adds }) => sum + adds, 0);
