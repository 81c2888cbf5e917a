// A decoder writes a sentence: which queries, keys and values it computes at each step, and which it reads from its cache.

import { rows, work } from "../live/cache.js";
import { button, controls, frame, hue, keeper, make, number, powers, scroller, slide, slider, table, verdict, write } from "./parts.js";

const WORDS = ["A", "man", "is", "riding", "a", "bike", "."];
const LONG = 1000; // tokens
const KINDS = { without: "without a cache", with: "with a cache" };
const SAYS = { without: "everything is computed again in each step", with: "only the cells marked new are computed in this step" };
const count = (value) => value.toLocaleString("en");
const total = (T, C, kind) => work(T, C, kind === "with").reduce((sum, part) => sum + part);

export function mount(root) {
  const chosen = { step: 4, width: 512 };
  const said = verdict();
  const cells = {}; // a press on a column leads to its step
  for (const kind of Object.keys(KINDS)) cells[kind] = ["q", "k", "v"].map(() => WORDS.map((_, position) => make("td", { onclick: () => slide(steps, position + 1) })));
  const sums = Object.keys(KINDS).map((kind) => [0, 1, 2].map((place) => make("td", place === 2 ? { class: "widget-bar" } : {}, kind)));

  // what happens in a step to the query, the key or the value of a position
  function state(kind, letter, position) {
    const newest = chosen.step - 1;
    if (position > newest) return "";
    if (position === newest || kind === "without") return "new";
    return letter === "q" ? "" : "read";
  }

  function show() {
    const { step, width } = chosen;
    const most = total(step, width, "without");
    Object.keys(KINDS).forEach((kind, place) => {
      cells[kind].forEach((row, letter) =>
        row.forEach((cell, position) => {
          write(cell, state(kind, "qkv"[letter], position));
          cell.style.setProperty("--weight", { new: 1, read: 0.25 }[cell.textContent] ?? 0);
        }),
      );
      const [now, all] = rows(step, kind === "with");
      const operations = total(step, width, kind);
      [now, all, operations].forEach((value, n) => write(sums[place][n], count(value)));
      sums[place][2].style.setProperty("--weight", (operations / most).toFixed(3));
    });
    const ratio = (T) => total(T, width, "without") / total(T, width, "with");
    const [[now, all], [, kept]] = [rows(step, false), rows(step, true)];
    write(
      said,
      `Step ${step}, “${WORDS[step - 1]}”. Without a cache, the layer computes ${now} keys and values in this step and ${all} so far; with a cache, 2 and ${kept}. ` +
        `Without a cache, it has performed ${number(ratio(step), 1)} times as many operations. For ${count(LONG)} tokens, the factor is ${number(ratio(LONG), 0)}.`,
    );
    back.setAttribute("aria-disabled", step === 1);
    next.setAttribute("aria-disabled", step === WORDS.length);
  }

  const go = (by) => slide(steps, chosen.step + by); // the slider stops at its ends
  const turn = keeper(chosen, show);
  const steps = slider({ label: "Step", min: 1, max: WORDS.length, step: 1, value: chosen.step, text: (step) => `${step} of ${WORDS.length}`, oninput: turn("step") });
  const width = powers({ label: "Width C", min: 6, max: 13, value: chosen.width, text: count, oninput: turn("width") });
  const [back, next] = [button("Back", () => go(-1)), button("Next token", () => go(1))];
  const maps = Object.entries(KINDS).map(([kind, name]) => {
    const lines = cells[kind].map((row, letter) => make("tr", {}, make("th", { scope: "row" }, hue("qkv"[letter])), row));
    return scroller(name, table({ class: "widget-heat widget-words" }, `${name}, ${SAYS[kind]}`, ["", ...WORDS], lines));
  });
  const lines = Object.values(KINDS).map((name, place) => make("tr", {}, make("th", { scope: "row" }, name), sums[place]));
  show();
  frame(
    root,
    "A sentence, token by token",
    "go back to the first token, and then forward to the last. Which of the cells does a cache save? Why does it keep no queries?",
    controls(steps, make("div", {}, back, " ", next), width),
    make("div", { class: "widget-side" }, maps),
    table({ class: "widget-table widget-bars" }, "", ["", "k, v now", "k, v so far", "operations so far"], lines),
    said,
  );
}
