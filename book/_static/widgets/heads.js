// The heads of the trained translator on the reader's own caption: where each head attends, and what the translation
// loses without it.

import { openModel } from "../live/client.js";
import { paint, themed } from "./heat.js";
import { button, captionForm, chooser, controls, frame, labelled, make, table, verdict, write } from "./parts.js";

const KINDS = {
  cross: { text: "cross-attention", of: (n) => `decoder.${n}.cross_attn`, rows: "target", columns: "source" },
  encoder: { text: "self-attention, encoder", of: (n) => `encoder.${n}.attn`, rows: "source", columns: "source" },
  decoder: { text: "self-attention, decoder", of: (n) => `decoder.${n}.attn`, rows: "target", columns: "target" },
};
const quoted = (text) => `“${text.trim()}”`;
const range = (n) => [...Array(n).keys()];

export async function mount(root, say) {
  const model = await openModel("multi30k-en-de", say);
  const { n_layers, n_heads } = model.config;
  const all = Object.keys(KINDS).length * n_layers * n_heads;
  let [kind, at, found, cut] = [KINDS.cross, 1, null, {}]; // cut: the heads that are cut, by the name of their attention
  const said = verdict();
  const note = make("p", { class: "widget-note", role: "status" });
  const words = make("div", { class: "widget-row widget-words", role: "group", "aria-label": "Choose the query" });

  const maps = range(n_layers).flatMap((n) =>
    range(n_heads).map((h) => {
      const [canvas, most] = [make("canvas"), make("span")];
      const press = button("", () => turn(n, h), { class: "widget-map" });
      press.append(make("span", { class: "widget-picture" }, canvas), most);
      return { n, h, canvas, most, press };
    }),
  );
  const rows = range(n_layers).map((n) => {
    const cells = maps.filter((map) => map.n === n).map(({ press }) => make("td", {}, press));
    return make("tr", {}, make("th", { scope: "row" }, `layer ${n + 1}`), cells);
  });
  const grid = table({ class: "widget-maps" }, null, ["", ...range(n_heads).map((h) => `head ${h + 1}`)], rows);

  const looks = make("div", {}, words, note, grid);

  // Show the row of one query in every map.
  function ask(t) {
    at = t;
    const [asking, keys] = [found[kind.rows], found[kind.columns]];
    let sharpest = { weight: 0 };
    for (const { n, h, most, press } of maps) {
      const row = found.weights[kind.of(n)][h][t];
      const weight = Math.max(...row);
      const word = keys[row.indexOf(weight)].trim();
      const percent = Math.round(100 * weight);
      if (weight > sharpest.weight) sharpest = { weight, text: `layer ${n + 1}, head ${h + 1}, which puts ${percent} % on ${quoted(word)}` };
      const gone = Boolean(cut[kind.of(n)]?.includes(h));
      write(most, gone ? "cut" : `${word} ${percent}`);
      press.setAttribute("aria-pressed", gone);
      press.setAttribute("aria-label", `Cut layer ${n + 1}, head ${h + 1}: ${quoted(asking[t])} attends to ${quoted(word)}, ${percent} %`);
    }
    [...words.children].forEach((word, s) => word.setAttribute("aria-pressed", s === t));
    grid.style.setProperty("--row", t / asking.length);
    grid.style.setProperty("--rows", asking.length);
    const from = kind.rows === "target" ? `For the word after ${quoted(asking[t])},` : `For ${quoted(asking[t])},`; // the decoder has read that word
    write(note, `${from} the largest weight is in ${sharpest.text}.`);
  }

  const draw = () => found && maps.forEach(({ n, h, canvas }) => paint(canvas, found.weights[kind.of(n)][h]));
  function show() {
    draw();
    const word = (text, t) =>
      button(text.trim(), () => ask(t), { class: "widget-button widget-small", onfocus: () => ask(t), onpointerenter: () => ask(t) });
    words.replaceChildren(...found[kind.rows].map(word));
    ask(Math.min(at, found[kind.rows].length - 1));
  }

  async function run() {
    try {
      const result = await model.newest("heads", { text: caption.value, cut });
      if (!result) return;
      found = result;
      const count = Object.values(cut).flat().length;
      const before = found.text === found.whole ? "as with all the heads." : `instead of ${quoted(found.whole)}`;
      write(said, count ? `${count} of ${all} heads cut: ${quoted(found.text)}, ${before}` : `With all ${all} heads: ${quoted(found.text)}`);
      show();
    } catch (error) {
      found = null;
      write(said, error.message);
    }
    looks.hidden = !found;
  }
  function turn(n, h) {
    const [name, heads] = [kind.of(n), cut[kind.of(n)] ?? []];
    cut = { ...cut, [name]: heads.includes(h) ? heads.filter((other) => other !== h) : [...heads, h] };
    return run();
  }

  const [caption, form] = captionForm("Translate", run);
  const kinds = chooser(Object.entries(KINDS).map(([key, { text }]) => [key, text]), "cross", (key) => ((kind = KINDS[key]), show()));
  frame(
    root,
    "Every head of a trained translator",
    "point at a word to see its row in each map. Press a map to cut its head. Which head does the translation need most?",
    form,
    controls(labelled("Attention", kinds), button("Restore all heads", () => ((cut = {}), run()))),
    said,
    looks,
  );
  themed(draw);
  await run();
}
