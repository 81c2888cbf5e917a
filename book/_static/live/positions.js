// Sinusoids of many positions, and their inner products: the formulas of chapter 4.1.

import { sinusoid } from "./layers.js";

const exact = (value) => value;

// A row of C numbers for each position.
export const sinusoids = (length, C) => Array.from({ length }, (_, t) => sinusoid(t, C, exact));

// PE(t) · PE(s) for every s.
export const products = (rows, t) => rows.map((row) => row.reduce((sum, value, c) => sum + value * rows[t][c], 0));
