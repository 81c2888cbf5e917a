// One token of a text as a table: the candidates, and what each height of the model gives them.

import { button, make, number, scroller, table } from "./parts.js";

const VISIBLE = { " ": "a space", "\n": "a new line" };
export const named = (piece) => VISIBLE[piece] ?? `“${piece.replace(/^ /, "␣")}”`;

// `found` is the worker's answer to "look"; `pick` gets the id of a candidate that is pressed.
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
  const caption = "In %, what final norm and output layer make of the stream at each height; last, what the model says";
  const made = table({ class: "widget-heat widget-words" }, caption, ["behind", ...heights], [
    row("first choice", lens.map(({ piece }) => cell(named(piece)))),
    ...top.map(candidate),
    row("entropy, bits", lens.map(({ bits }) => cell(number(bits)))),
  ]);
  return scroller("Candidates, and what each height gives them", made);
}
