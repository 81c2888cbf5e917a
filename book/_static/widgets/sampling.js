// Which of the next characters that a trained model expects are kept by temperature, top-k, top-p and min-p.

import { softmax } from "../live/layers.js";
import { keepMinP, keepTopK, keepTopP, ranked } from "../live/sampling.js";
import { chooser, controls, data, frame, labelled, make, number, slider, table, verdict, write } from "./parts.js";

const SHOWN = 12; // rows
const visible = { " ": "space", "\n": "new line" };
const share = (value) => number(value, 2);
const FILTERS = {
  all: { name: "nothing: keep all", keep: (logits) => logits },
  p: { name: "top-p", keep: keepTopP, min: 0.05, max: 1, step: 0.05, value: 0.9, text: share },
  k: { name: "top-k", keep: keepTopK, min: 1, max: 20, step: 1, value: 5, text: String },
  min: { name: "min-p: a share of the largest", keep: keepMinP, min: 0.01, max: 1, step: 0.01, value: 0.1, text: share },
};

export async function mount(root) {
  const { characters, places } = await data("data/next.json");
  const names = [...characters].map((character) => visible[character] ?? character);
  let [place, filter, temperature] = [0, "p", 1];
  const amounts = Object.fromEntries(Object.entries(FILTERS).map(([key, { value }]) => [key, value]));
  const said = verdict();
  const text = make("p", { class: "widget-text widget-prompt" });
  const cells = Array.from({ length: SHOWN }, () => {
    const row = { name: make("th", { scope: "row" }), before: make("td", { class: "widget-bar" }) };
    return { ...row, kept: make("td"), after: make("td") };
  });
  const rest = make("td", { colspan: 4 });

  function show() {
    const logits = places[place].logits.map((logit) => logit / temperature);
    const kept = FILTERS[filter].keep(logits, amounts[filter]);
    const [before, after] = [softmax(logits), softmax(kept)];
    const order = ranked(logits);
    const stays = order.filter((id) => kept[id] > -Infinity);
    cells.forEach((row, rank) => {
      const id = order[rank];
      write(row.name, names[id]);
      write(row.before, number(before[id], 3));
      row.before.style.setProperty("--weight", before[id].toFixed(3));
      write(row.kept, kept[id] > -Infinity ? "✓ kept" : "✗ cut");
      write(row.after, number(after[id], 3));
    });
    const others = Math.max(0, stays.length - SHOWN);
    write(rest, `and ${order.length - SHOWN} more characters, of which ${others} are kept`);
    const mass = stays.reduce((sum, id) => sum + before[id], 0);
    const how = filter === "all" ? "Without a filter" : `With ${FILTERS[filter].name.split(":")[0]}`;
    const amount = filter === "all" ? "" : ` ${FILTERS[filter].text(amounts[filter])}`;
    write(
      said,
      `${how}${amount}, at temperature ${number(temperature, 1)}, ${stays.length} of ${order.length} characters ` +
        `${stays.length === 1 ? "is" : "are"} kept, with ${number(mass, 3)} of the probability.`,
    );
    text.replaceChildren(places[place].text.split("\n").slice(-2).join("\n"), make("strong", {}, "_"));
  }

  const sliders = Object.entries(FILTERS)
    .filter(([key]) => key !== "all")
    .map(([key, { name, keep, ...range }]) => {
      const label = name.split(":")[0].replace(/^./, (letter) => letter.toUpperCase());
      const made = slider({ ...range, label, oninput: (value) => ((amounts[key] = value), show()) });
      made.hidden = key !== filter;
      return [key, made];
    });
  const filters = Object.entries(FILTERS).map(([key, { name }]) => [key, name]);
  const choose = (value) => {
    filter = value;
    for (const [key, made] of sliders) made.hidden = key !== filter;
    show();
  };
  const asked = places.map(({ text }, i) => [i, `… ${text.split("\n").at(-1)}`]);
  show();
  frame(
    root,
    "What the filters keep of a real distribution",
    "find a top-k that suits the first prompt, then choose the last prompt. Does the same k still fit? Do the same with top-p.",
    controls(
      labelled("Prompt", chooser(asked, 0, (value) => ((place = Number(value)), show()))),
      labelled("Filter", chooser(filters, filter, choose)),
    ),
    controls(
      slider({
        label: "Temperature",
        ...{ min: 0.1, max: 2, step: 0.1, value: 1 },
        text: (value) => value.toFixed(1),
        oninput: (value) => ((temperature = value), show()),
      }),
      sliders.map(([, made]) => made),
    ),
    text,
    said,
    table(
      { class: "widget-table widget-bars widget-kept" },
      "What the shipped model of Shakespeare’s plays expects next, most probable first",
      ["next", "probability", "", "filtered"],
      [...cells.map(({ name, before, kept, after }) => make("tr", {}, name, before, kept, after)), make("tr", {}, rest)],
    ),
  );
}
