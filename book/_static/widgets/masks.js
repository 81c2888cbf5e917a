// A mask, cell by cell: which keys each query may attend to, and which weights follow from that.

import { both, causal, equal, everything, maskedSoftmax, padding, sliding } from "../live/masks.js";
import { button, frame, make, number, table, verdict, write } from "./parts.js";

const WORDS = ["A", "man", "sleeps", ".", "PAD", "PAD", "PAD"];
const REAL = WORDS.indexOf("PAD");
const SIZE = WORDS.length;
const SCORES = [
  [2, 1, 0, 0, 1, 1, 1],
  [1, 2, 3, 0, 1, 1, 1],
  [0, 3, 1, 1, 1, 1, 1],
  [0, 1, 2, 1, 1, 1, 1],
  [1, 1, 1, 1, 2, 2, 2],
  [1, 1, 1, 1, 2, 2, 2],
  [1, 1, 1, 1, 2, 2, 2],
]; // invented for this widget
const PRESETS = {
  "everything visible": everything(SIZE),
  padding: padding(REAL, SIZE),
  causal: causal(SIZE),
  "padding & causal": both(padding(REAL, SIZE), causal(SIZE)),
  "window of 2": sliding(2, SIZE),
};
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const numbered = (place) => (WORDS[place] === "PAD" ? `PAD ${place - REAL + 1}` : WORDS[place]);

export function mount(root) {
  let mask = PRESETS["padding & causal"].map((row) => [...row]);
  let [row, column] = [2, 0];
  const said = verdict();

  const cells = WORDS.map((_, t) =>
    WORDS.map((_, s) =>
      button("", () => toggle(t, s), { class: "widget-cell", onfocus: () => choose(t, s), onkeydown: walk }),
    ),
  );
  const heads = WORDS.map((word, t) =>
    make("th", { scope: "row", onclick: () => choose(t, column) }, make("span", { "aria-hidden": "true" }), word),
  );
  const details = WORDS.map(() => [0, 1, 2].map(() => make("td")));
  const presets = Object.entries(PRESETS).map(([name, made]) =>
    button(name, () => ((mask = made.map((line) => [...line])), show()), { class: "widget-button widget-small" }),
  );

  function toggle(t, s) {
    mask[t][s] = !mask[t][s];
    choose(t, s);
  }
  function choose(t, s) {
    [row, column] = [t, s];
    show();
  }
  // Tab reaches one cell, and the arrow keys lead from it to the others
  function walk(event) {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const [t, s] = [row + step[0], column + step[1]];
    cells[t]?.[s]?.focus();
  }

  function show() {
    cells.forEach((line, t) =>
      line.forEach((cell, s) => {
        write(cell, mask[t][s] ? "1" : "0");
        cell.setAttribute("aria-pressed", mask[t][s]);
        cell.setAttribute("aria-label", `${cell.textContent}: query ${numbered(t)} may attend to key ${numbered(s)}`);
        cell.tabIndex = t === row && s === column ? 0 : -1;
      }),
    );
    heads.forEach((head, t) => {
      head.className = t === row ? "chosen" : "";
      write(head.firstChild, t === row ? "▸ " : "");
    });
    presets.forEach((preset) => preset.setAttribute("aria-pressed", equal(mask, PRESETS[preset.textContent])));
    const weights = maskedSoftmax(SCORES[row], mask[row]);
    details.forEach(([score, sees, weight], s) => {
      write(score, mask[row][s] ? String(SCORES[row][s]) : `${SCORES[row][s]} → −∞`);
      write(sees, mask[row][s] ? "True" : "False");
      write(weight, number(weights[s], 3));
      weight.style.setProperty("--weight", weights[s].toFixed(3));
    });
    const seen = WORDS.map((_, s) => s).filter((s) => mask[row][s]);
    const list = seen.map((s) => `${numbered(s)} ${number(weights[s], 3)}`).join(", ");
    const nothing = "no key. By the rule of zeros, all the weights of this row are 0.";
    write(said, `“${numbered(row)}” may attend to ${list ? `${list}.` : nothing}`);
  }

  const grid = table(
    { class: "widget-heat widget-grid" },
    "Rows are queries and columns are keys. A 1 means True: the query may attend to the key. The arrow keys move to another cell, and the space bar changes it.",
    [make("span", { class: "visually-hidden" }, "query"), ...WORDS],
    WORDS.map((_, t) => make("tr", {}, heads[t], cells[t].map((cell) => make("td", {}, cell)))),
  );
  const parts = details.map(([score, sees, weight], s) => {
    weight.className = "widget-bar";
    return make("tr", {}, make("th", { scope: "row" }, WORDS[s]), score, sees, weight);
  });
  show();
  frame(
    root,
    "Make a mask by hand",
    "change the cells of one row until its weights are where you want them. Then mask the whole row.",
    make("div", { class: "widget-row", role: "group", "aria-label": "Masks to start from" }, presets),
    make(
      "div",
      { class: "widget-side" },
      grid,
      table({ class: "widget-table widget-bars" }, "The marked row", ["key", "score", "mask", "weight"], parts),
    ),
    said,
  );
}
