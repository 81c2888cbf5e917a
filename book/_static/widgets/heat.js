// A table of attention weights, with a row for each query and a column for each key. Larger weights are darker.

import { make, scroller, table } from "./parts.js";

// weights[t][s] is between 0 and 1; `rows` and `columns` are the texts of the queries and the keys.
export function heatTable({ rows, columns, weights, caption }) {
  const percent = (weight) => Math.round(100 * weight);
  const cell = (weight) => make("td", { style: `--weight: ${weight.toFixed(3)}` }, percent(weight) || "");
  const lines = rows.map((text, t) => make("tr", {}, make("th", { scope: "row" }, text), weights[t].map(cell)));
  return scroller(caption, table({ class: "widget-heat" }, caption, ["", ...columns], lines));
}

// A picture of a table of numbers, with one pixel for each. Numbers of size `most` or more have the full colour. Style
// sheets enlarge it.
export function paint(canvas, rows, most = 1) {
  canvas.width = Math.max(...rows.map((row) => row.length));
  canvas.height = rows.length;
  const [ink, style] = [canvas.getContext("2d"), getComputedStyle(canvas)];
  const [above, below] = ["--tl-heat", "--tl-below"].map((name) => style.getPropertyValue(name).trim());
  rows.forEach((row, y) =>
    row.forEach((value, x) => {
      ink.globalAlpha = Math.min(1, Math.abs(value) / most);
      ink.fillStyle = value < 0 ? below : above;
      ink.fillRect(x, y, 1, 1);
    }),
  );
}

// Draw again when the theme changes.
export const themed = (draw) =>
  new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-theme"] });

// The mean of several tables of weights.
export const meanOf = (tables) =>
  tables[0].map((row, t) => row.map((_, s) => tables.reduce((sum, table) => sum + table[t][s], 0) / tables.length));
