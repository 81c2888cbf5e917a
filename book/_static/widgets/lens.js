// A table for one token of a text: the candidates, and the probability that each depth of the model gives them.

import { button, make, number, scroller, table } from "./parts.js";

const VISIBLE = { " ": "a space", "\n": "a new line" };
export const named = (piece) => VISIBLE[piece] ?? `“${piece.replace(/^ /, "␣")}”`;

// `found` is the worker's answer to "look"; `pick` is called with the id of the candidate that was pressed.
export function lensTable({ top, lens, token }, pick) {
  const row = (head, cells) => make("tr", {}, make("th", { scope: "row" }, head), cells);
  const cell = (text, weight = 0) => make("td", { style: `--weight: ${weight.toFixed(3)}` }, text);
  const candidate = ({ id, piece, chances }) => {
    const kind = { class: "widget-button widget-small", "aria-pressed": String(id === token) };
    const percent = (chance, n) => number(100 * chance, n === lens.length - 1 ? 1 : 0);
    return row(
      button(named(piece), () => pick(id), kind),
      chances.map((chance, n) => cell(percent(chance, n), chance)),
    );
  };
  const heights = lens.map((_, n) => (n ? `block ${n}` : "embedding"));
  const caption = "Probabilities in %, read from the residual stream at each depth through the final norm and the output layer. The last column is the model’s own prediction.";
  const made = table({ class: "widget-heat widget-words" }, caption, ["after", ...heights], [
    row("first choice", lens.map(({ piece }) => cell(named(piece)))),
    ...top.map(candidate),
    row("entropy, bits", lens.map(({ bits }) => cell(number(bits)))),
  ]);
  return scroller("Candidates, with their probabilities at each depth", made);
}
