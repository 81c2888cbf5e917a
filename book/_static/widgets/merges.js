// Byte-pair encoding of the reader's own sentence, one merge at a time.

import { readTokenizer } from "../live/tokenizer.js";
import { button, chooser, controls, data, frame, labelled, make, slider, verdict, write } from "./parts.js";

const LEARNED = [
  ["data/captions.json", "12 captions: 61 merges"],
  ["../live/models/multi30k-en-de/tokenizer.json", "58,000 captions: 4,741 merges"],
];
const SENTENCE = "A man is riding a bike.";
const LONGEST = 200; // characters

const shown = (text) => text.replaceAll(" ", "␣").replaceAll("\n", "↵");

export async function mount(root) {
  let name = LEARNED[0][0];
  const tokenizers = { [name]: readTokenizer(await data(name)) };
  let [steps, at] = [[], 0];
  const said = verdict();
  const pieces = make("div", { class: "widget-pieces", "aria-hidden": "true" }); // the result line lists them too

  const readable = (token) => shown(tokenizers[name].readable(token));

  function piece(token, fresh) {
    const id = make("small", {}, String(tokenizers[name].ids.get(token)));
    return make("span", { class: fresh ? "widget-piece fresh" : "widget-piece" }, readable(token), id);
  }

  function show() {
    const { rank, pair, words } = steps[at];
    const made = pair?.join("");
    pieces.replaceChildren(...words.map((word) => make("span", {}, word.map((one) => piece(one, one === made)))));
    const all = words.flat();
    const learned = `number ${rank + 1} of the ${tokenizers[name].ranks.size} that were learned`;
    const merged = pair ? `Merge ${at}: ${pair.map(readable).join(" + ")}, ${learned}.` : "No merge yet.";
    const end = at === steps.length - 1 ? " No other merge applies." : "";
    write(said, `${merged} ${all.length} ${all.length === 1 ? "piece" : "pieces"}: ${all.map(readable).join("|")}${end}`);
    const input = merges.querySelector("input");
    [input.max, input.value] = [steps.length - 1, at];
    input.dispatchEvent(new Event("input"));
    back.setAttribute("aria-disabled", at === 0);
    next.setAttribute("aria-disabled", at === steps.length - 1);
  }

  function read() {
    try {
      steps = tokenizers[name].trace(sentence.value);
      at = 0;
      show();
    } catch (error) {
      write(said, error.message);
    }
  }
  const go = (place) => {
    if (place < 0 || place >= steps.length || place === at) return;
    at = place;
    show();
  };

  async function choose(chosen) {
    try {
      tokenizers[chosen] ??= readTokenizer(await data(chosen));
      name = chosen;
      read();
    } catch (error) {
      [learned.value, said.textContent] = [name, error.message];
    }
  }

  const sentence = make("input", {
    ...{ type: "text", value: SENTENCE, maxlength: LONGEST, autocomplete: "off", spellcheck: "false", oninput: read },
  });
  const learned = chooser(LEARNED, name, choose);
  const merges = slider({
    label: "Merges done",
    ...{ min: 0, max: 0, step: 1, value: 0 },
    text: (place) => `${place} of ${steps.length - 1}`,
    oninput: go,
  });
  const back = button("Back", () => go(at - 1));
  const next = button("Merge", () => go(at + 1));
  read();
  frame(
    root,
    "Merge your own sentence",
    "apply the merges one by one. Then type a sentence of your own, and choose the tokenizer that has learned from more captions.",
    controls(make("div", { class: "widget-grow" }, labelled("Sentence", sentence)), labelled("Learned from", learned)),
    controls(merges, make("div", {}, back, " ", next)),
    pieces,
    said,
  );
}
