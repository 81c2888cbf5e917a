// One query in six steps, with the reader's own words and query matrix.

import { oneQuery } from "../live/steps.js";
import { chooser, fold, frame, hue, labelled, make, number, scroller, table, verdict, write } from "./parts.js";

const WORDS = ["A", "man", "is", "riding", "a", "bike", "."];
const KINDS = ["a person", "a thing", "an action", "none of these"];
const one = (kind) => KINDS.map((_, place) => Number(place === kind));
const IDENTITY = KINDS.map((_, kind) => one(kind));
const plain = (value) => number(value, Number.isInteger(value) ? 0 : 2);
const row = (values) => `(${values.map(plain).join(", ")})`;

export function mount(root) {
  const kinds = WORDS.map((word) => ({ man: 0, bike: 1, riding: 2 })[word] ?? 3);
  const wq = [
    [0, 0, 4, 0],
    [0, 0, 4, 0],
    [4, 4, 0, 0],
    [0, 0, 0, 0],
  ];
  let asking = 3;
  const said = verdict();
  const cells = WORDS.map(() => [0, 1, 2].map(() => make("td")));

  function show() {
    const { query, fits, scores, weights, output } = oneQuery(asking, kinds.map(one), wq, IDENTITY, IDENTITY);
    lines.forEach((line, kind) => line.classList.toggle("here", kind === kinds[asking]));
    cells.forEach(([fit, score, weight], s) => {
      write(fit, plain(fits[s]));
      write(score, plain(scores[s]));
      write(weight, number(weights[s]));
      weight.style.setProperty("--weight", weights[s].toFixed(3));
    });
    const most = Math.max(...weights);
    const best = WORDS.filter((_, s) => weights[s] > most - 1e-9).map((word) => `“${word}”`);
    const whom = best.length === WORDS.length ? "equally to all words" : `most to ${best.join(" and ")}`;
    write(
      said,
      `The query of “${WORDS[asking]}” is ${row(query)}. It attends ${whom}, with a weight of ${number(most)}. ` +
        `The output is ${row(output)}.`,
    );
  }

  const choices = KINDS.map((kind, place) => [place, kind]);
  const rows = WORDS.map((word, s) => {
    const kind = chooser(choices, kinds[s], (value) => ((kinds[s] = Number(value)), show()));
    kind.setAttribute("aria-label", `“${word}” is`);
    return make("tr", {}, make("th", { scope: "row" }, word), make("td", {}, kind), cells[s]);
  });
  const field = (i, j) => {
    const input = make("input", { type: "number", min: -9, max: 9, step: 1, value: wq[i][j] });
    input.setAttribute("aria-label", `a word that is ${KINDS[i]} asks for ${KINDS[j]}`);
    input.addEventListener("input", () => ((wq[i][j] = Number(input.value) || 0), show()));
    return make("td", {}, input);
  };
  const lines = KINDS.map((kind, i) => make("tr", {}, make("th", { scope: "row" }, kind), KINDS.map((_, j) => field(i, j))));
  const matrix = table(
    { class: "widget-table widget-matrix" },
    "W_q has a row for what a word is and a column for what it asks for. The word that asks uses only the shaded row",
    ["", ...KINDS],
    lines,
  );
  frame(
    root,
    "Who asks whom?",
    "let “bike” ask. Then make “.” a person. Which words attend to it now? Then let a thing ask for actions with 8 instead of 4.",
    labelled("The word that asks", chooser(WORDS.map((word, s) => [s, word]), asking, (s) => ((asking = Number(s)), show()))),
    scroller(
      "The words and the six steps",
      table({ class: "widget-heat widget-words" }, null, ["word", "it is", ["match ", hue("q"), "·", hue("k")], "score", "weight"], rows),
    ),
    fold("Change what words ask for", false, scroller("The matrix W_q", matrix)),
    said,
  );
  show();
}
