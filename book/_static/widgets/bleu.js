// BLEU of two sentences that the reader can edit: the n-grams that match, their precisions, and the brevity penalty.

import { bleu, split } from "../live/bleu.js";
import { chooser, controls, frame, labelled, make, number, scroller, table, verdict, write } from "./parts.js";

const REFERENCE = "Zwei Hunde rennen durch den Schnee .";
const SAID = {
  "one other word": "Zwei Hunde laufen durch den Schnee .",
  "another order": "Durch den Schnee rennen zwei Hunde .",
  "the end is missing": "Zwei Hunde rennen durch",
  "a babble": "Hunde Schnee Hunde Schnee Hunde Schnee Hunde",
  "the reference itself": REFERENCE,
};
const NAMES = ["words", "bigrams", "trigrams", "4-grams"];
const SIGNS = { right: "✓", clipped: "clip", wrong: "✗" };
const LONGEST = 200; // characters

export function mount(root) {
  const said = verdict();
  const [grid, counts] = [make("div"), make("div")];

  // each n-gram is drawn below the middle of its words, so each word is two columns wide
  function pyramid(words, orders) {
    const head = words.map((word) => make("th", { colspan: 2 }, word));
    const rows = orders.map(({ states }, place) => {
      const cell = (state) => make("td", { colspan: 2, style: `--weight: ${Number(state === "right")}` }, SIGNS[state]);
      const indent = place ? [make("th", { colspan: place })] : [];
      return make("tr", {}, make("th", {}, String(place + 1)), indent, states.map(cell));
    });
    const [top, body] = [make("thead", {}, make("tr", {}, make("th"), head)), make("tbody", {}, rows)];
    return make("table", { class: "widget-heat widget-words widget-ngrams", "aria-hidden": "true" }, top, body);
  }

  function show() {
    const [words, wanted] = [split(translation.value), split(reference.value)];
    const { orders, brevity, score } = bleu(words, wanted);
    grid.replaceChildren(scroller("The n-grams of the translation, below their words; the next table counts them", pyramid(words, orders)));
    const rows = orders.map(({ states, right, precision }, place) => {
      const bar = make("td", { class: "widget-bar", style: `--weight: ${precision.toFixed(3)}` }, number(precision));
      const clipped = states.filter((state) => state === "clipped").length;
      const numbers = [states.length, right, clipped].map((count) => make("td", {}, String(count)));
      return make("tr", {}, make("th", { scope: "row" }, NAMES[place]), numbers, bar);
    });
    counts.replaceChildren(table({ class: "widget-table widget-bars" }, "", ["n-grams", "all", "right", "clipped", "precision"], rows));
    const shares = orders.map(({ states, right }, place) => `${NAMES[place]} ${right} of ${states.length}`);
    const short = brevity < 1 ? `${words.length} words instead of ${wanted.length} give a brevity penalty of ${number(brevity)}. ` : "";
    const zero = orders.some(({ right }) => !right) ? ", because one of the precisions is 0" : "";
    write(said, `Right: ${shares.join(", ")}. ${short}BLEU is ${number(score, 1)}${zero}.`);
  }

  const field = (value) => make("input", { type: "text", value, maxlength: LONGEST, autocomplete: "off", spellcheck: "false", lang: "de", oninput: show });
  const [translation, reference] = [field(SAID["one other word"]), field(REFERENCE)];
  const examples = Object.entries(SAID).map(([name, text]) => [text, name]);
  const example = chooser(examples, translation.value, (text) => ((translation.value = text), show()));
  show();
  frame(
    root,
    "Edit a translation, watch its BLEU",
    "one other word breaks nine n-grams. How many are broken if the first word is wrong instead of the third? Then delete words from the end.",
    controls(labelled("Example", example), make("div", { class: "widget-grow" }, labelled("Translation", translation))),
    controls(make("div", { class: "widget-grow" }, labelled("Reference", reference))),
    grid,
    counts,
    said,
  );
}
