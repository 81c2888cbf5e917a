// A trained translator in the page: an English sentence goes in, German comes out, and the reader can look inside.

import { openModel } from "../live/client.js";
import { heatTable, meanOf } from "./heat.js";
import { button, chooser, controls, fold, frame, labelled, make } from "./parts.js";
import { finishedTable, treeList, treePicture } from "./tree.js";

const CAPTIONS = "multi30k-en-de"; // the model that is used if the page names none
const EXAMPLES = {
  [CAPTIONS]: [
    "A man is riding a bike.",
    "Two dogs are playing in the snow.",
    "A young woman in a red dress is singing on a stage in front of many people.",
  ],
  "everyday-en-de": [
    "A man is riding a bike.",
    "Where did you learn German?",
    "She was reading a book when I came home.",
  ],
};
const BEAMS = [1, 2, 3, 5, 8].map((beam) => [beam, beam === 1 ? "1 (greedy)" : String(beam)]);

// The cross-attention of a chosen layer and head. The choice is kept from one sentence to the next.
function look({ n_layers, n_heads }) {
  const chosen = { layer: n_layers - 2, head: -1 };
  const table = make("div");
  let found = null;
  const draw = () => {
    if (!found) return;
    const heads = found.weights[chosen.layer];
    const weights = chosen.head < 0 ? meanOf(heads) : heads[chosen.head];
    const which = chosen.head < 0 ? `mean of the ${n_heads} heads` : `head ${chosen.head + 1}`;
    const caption = `Cross-attention, layer ${chosen.layer + 1}, ${which}, in %`;
    table.replaceChildren(heatTable({ rows: found.target, columns: found.source, weights, caption }));
  };
  const choose = (name) => (value) => {
    chosen[name] = Number(value);
    draw();
  };
  const numbered = (n) => Array.from({ length: n }, (_, i) => [i, String(i + 1)]);
  const layers = chooser(numbered(n_layers), chosen.layer, choose("layer"));
  const heads = chooser([[-1, "mean"], ...numbered(n_heads)], chosen.head, choose("head"));
  const part = fold(
    "Where it looks",
    true,
    make("p", {}, "Each row belongs to a token of the translation. Its weights sum to 100 and show where the decoder looks when it chooses that token."),
    controls(labelled("Layer", layers), labelled("Head", heads)),
    table,
  );
  return { part, show: (result) => ((found = result), draw()) };
}

function searched() {
  const inside = make("div");
  const show = (result) => {
    const room = inside.getBoundingClientRect().width || 320;
    inside.replaceChildren(
      treePicture(result, room),
      finishedTable(result.finished),
      fold("The tree as a list", false, treeList(result)),
    );
  };
  let latest = null;
  const part = fold(
    "How the beam search chose",
    false,
    make("p", {}, "Each line shows the best unfinished translations after one more token, with their log-probabilities. The marked path won."),
    inside,
  );
  part.addEventListener("toggle", () => part.open && latest && show(latest));
  return { part, show: (result) => ((latest = result), part.open && show(result)) };
}

export async function mount(root, say) {
  const name = root.dataset.model ?? CAPTIONS;
  const model = await openModel(name, say);
  const english = make("input", { type: "text", value: EXAMPLES[name][0], autocomplete: "off", lang: "en" });
  const beams = chooser(BEAMS, 5, () => run());
  const german = make("output", { class: "widget-result", lang: "de", "aria-live": "polite" });
  const note = make("p", { class: "widget-note", role: "status" });
  const [attention, beam] = [look(model.config), searched()];
  const stop = button("Stop", () => model.ask("stop"), { disabled: true });

  // Hide the results of the sentence before.
  function clear(text) {
    note.textContent = text;
    german.textContent = "";
    for (const { part } of [attention, beam]) part.hidden = true;
  }

  async function run() {
    root.classList.add("widget-stale");
    stop.disabled = false;
    note.textContent = "Searching …";
    try {
      const asked = { text: english.value, beam: Number(beams.value) };
      const result = await model.newest("translate", asked, ({ text }) => (note.textContent = `Searching … ${text}`));
      if (!result) return;
      if (result.stopped) clear("Stopped.");
      else show(result);
    } catch (error) {
      clear(error.message);
    }
    root.classList.remove("widget-stale");
    stop.disabled = true;
  }

  function show(result) {
    german.textContent = result.text;
    const size = `${(model.parameters / 1e6).toFixed(2)} million parameters`;
    const sure = Math.exp(result.best.logProb / (result.best.ids.length + 1)); // the end token counts too
    note.textContent =
      `${result.steps.length} steps in ${result.seconds.toFixed(2)} s, with ${size}, in your browser. ` +
      `The model gave the pieces of the translation ${Math.round(100 * sure)} % on average (geometric mean)` +
      (sure < 0.4 ? ", which means that it is unsure: don’t trust this translation." : ".");
    for (const each of [attention, beam]) {
      each.part.hidden = false;
      each.show(result);
    }
  }

  const ask = (event) => {
    event.preventDefault();
    return run();
  };
  const example = (text) => button(text, () => ((english.value = text), run()), { class: "widget-example" });
  frame(
    root,
    "The translator in this page",
    EXAMPLES[name].map(example),
    make(
      "form",
      { class: "widget-row", onsubmit: ask },
      make("div", { class: "widget-grow" }, labelled("English sentence", english)),
      labelled("Beam", beams),
      make("button", { class: "widget-button" }, "Translate"),
      stop,
    ),
    german,
    note,
    attention.part,
    beam.part,
  );
  english.focus({ preventScroll: true });
  await run();
}
