// A walk with a sentence through the whole Transformer, box by box, with the tensor that each box returns.

import { openModel } from "../live/client.js";
import { paint, themed } from "./heat.js";
import { button, captionForm, controls, frame, make, number, scroller, table, verdict, write } from "./parts.js";

// A box: the name of the part in the package, its label, and what it does.
const sublayer = (layer, name, part, text, about) => [
  [`${layer}.${name}_residual.norm`, "norm", "each vector by itself, with its numbers brought to a common size"],
  [`${layer}.${part}`, text, about],
  [`${layer}.${name}_residual`, "sum", "the input of the sublayer plus its output"],
];
const layer = (at, text, cross) => [
  ...sublayer(at, "attn", "attn", "attention", text),
  ...(cross ? sublayer(at, "cross", "cross_attn", "cross-attention", "what each word gathers from the memory") : []),
  ...sublayer(at, "ffn", "ffn", "feed-forward", "each vector by itself, through F hidden numbers"),
];
const input = (side) => [
  [`${side}.tok_emb`, "token · √C", "for each token its row of the embedding table, times √C"],
  [`${side}.position`, "position", "sines and cosines of the position, the same for every sentence"],
  [side, "sum", "what the first layer reads"],
];
const SIDES = { src: ["Encoder", "B S"], tgt: ["Decoder", "B T"] };
const stagesOf = (layers) =>
  [
    ["src", "embedding", input("src")],
    ...layers.map((n) => ["src", `layer ${n + 1}`, layer(`encoder.${n}`, "what each token gathers from all tokens")]),
    ["src", "memory m", [["encoder_norm", "last norm", "all that the decoder will know of the sentence"]]],
    ["tgt", "embedding", input("tgt")],
    ...layers.map((n) => ["tgt", `layer ${n + 1}`, layer(`decoder.${n}`, "what each word gathers from itself and the words before it", true)]),
    ["tgt", "h", [["decoder_norm", "last norm", "what the output layer reads"]]],
    ["tgt", "logits", [["lm_head", "logits", "h times the embedding table, which gives a number for each token that could come next"]]],
  ].map(([side, title, boxes]) => ({ side, title, boxes }));
const percent = (share) => `${number(100 * share, 1)} %`;
const KEYS = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };

export async function mount(root, say) {
  const model = await openModel("multi30k-en-de", say);
  const layers = [...Array(model.config.n_layers).keys()];
  const stages = stagesOf(layers);
  const places = stages.flatMap((stage) => stage.boxes.map(([name, text, about]) => ({ stage, name, text, about })));
  let [at, read, found] = [2, 0, null]; // read: how many pieces the decoder has read, without the first
  const said = verdict();
  const parts = make("div", { class: "widget-row", role: "group", "aria-label": "The boxes of this layer" });
  const [rows, five, so] = [make("div"), make("div"), make("span", { lang: "de" })];

  // The last box of a layer is its output.
  const last = (stage) => places.findLastIndex((place) => place.stage === stage);
  const pressed = (stage) => button(stage.title, () => go(last(stage)), { class: "widget-button widget-small" });
  const boxes = new Map(stages.map((stage) => [stage, pressed(stage)]));
  const columns = Object.entries(SIDES).map(([key, [title]]) => {
    const own = stages.filter(({ side }) => side === key).map((stage) => boxes.get(stage));
    return make("div", { class: "widget-stack", role: "group", "aria-label": title }, make("p", {}, title), own);
  });

  function go(place) {
    if (!found || place < 0 || place >= places.length) return;
    at = place;
    const { stage } = places[at];
    for (const [one, box] of boxes) box.setAttribute("aria-pressed", one === stage);
    parts.replaceChildren(
      ...places.flatMap((one, to) => {
        if (one.stage !== stage) return [];
        const attributes = { class: "widget-button widget-small", "aria-pressed": String(to === at) };
        return [button(one.text, () => (go(to), parts.querySelector("[aria-pressed=true]").focus()), attributes)];
      }),
    );
    show();
  }

  function show() {
    const { stage, name, text, about } = places[at];
    const decodes = stage.side === "tgt";
    const pieces = decodes ? found.target.slice(0, read + 1) : found.source;
    const tensor = found.heard[name].slice(0, pieces.length);
    const size = tensor[0].length;
    const squares = tensor.map((row) => row.reduce((sum, value) => sum + value * value, 0));
    const most = 2.5 * Math.sqrt(squares.reduce((sum, one) => sum + one, 0) / (size * tensor.length));
    const strips = tensor.map(() => make("canvas"));
    const lines = tensor.map((row, t) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, pieces[t].trim()),
        make("td", {}, strips[t]),
        make("td", {}, number(Math.sqrt(squares[t]), 1)),
        make("td", {}, [...row.slice(0, 3)].map((value) => number(value)).join(", ")),
      ),
    );
    const caption = `Purple is above 0 and orange is below. Numbers beyond ±${number(most, 1)} have the full colour.`;
    const head = ["token", `its ${size.toLocaleString("en")} numbers`, "length", "the first three"];
    rows.replaceChildren(scroller("The tensor, with a row for each token", table({ class: "widget-table widget-strips" }, caption, head, lines)));
    strips.forEach((strip, t) => paint(strip, [tensor[t]], most));
    const letters = `${SIDES[stage.side][1]} ${name === "lm_head" ? "V" : "C"}`;
    const where = [...new Set([SIDES[stage.side][0], stage.title, text])].join(", ");
    write(so, [pieces[0], pieces.slice(1).join("")].join(" ").trim());
    const [[best, share]] = found.next[read];
    const then = name === "lm_head" ? ` After “${so.textContent}”, it predicts “${best.trim()}” with ${percent(share)}.` : "";
    write(said, `${where}: ${about}. ${letters} = 1 × ${tensor.length} × ${size}.${then}`);
    five.hidden = name !== "lm_head";
    const bar = ([piece, share]) =>
      make("tr", {}, make("th", { scope: "row" }, piece.trim()), make("td", { class: "widget-bar", style: `--weight: ${share.toFixed(3)}` }, percent(share)));
    five.replaceChildren(table({ class: "widget-table widget-bars" }, null, ["next", "probability"], found.next[read].map(bar)));
    steps.hidden = !decodes;
    back.setAttribute("aria-disabled", read === 0);
    on.setAttribute("aria-disabled", read === found.target.length - 1);
  }

  const turn = (by) => {
    read = Math.max(0, Math.min(found.target.length - 1, read + by));
    show();
  };
  const [back, on] = [button("Previous word", () => turn(-1)), button("Next word", () => turn(1))];
  const steps = controls(back, on, make("p", {}, "The decoder has read: ", so));

  async function run() {
    try {
      const result = await model.newest("walk", { text: caption.value });
      if (!result) return;
      [found, read] = [result, 0];
      go(at);
    } catch (error) {
      found = null;
      write(said, error.message);
    }
    for (const part of [stacks, parts, rows]) part.hidden = !found;
    if (!found) steps.hidden = five.hidden = true;
  }
  const walked = (event) => {
    if (!(event.key in KEYS)) return;
    event.preventDefault();
    go(at + KEYS[event.key]);
    parts.querySelector("[aria-pressed=true]").focus();
  };
  const [caption, form] = captionForm("Walk", run);
  const stacks = make("div", { class: "widget-stacks" }, columns);
  const all = make("div", { class: "widget-side", onkeydown: walked }, stacks, make("div", {}, parts, steps, said, five));
  frame(
    root,
    "Through the whole Transformer",
    "press a box, then use the arrow keys. In the decoder, move on word by word. When do the logits predict “Fahrrad”?",
    form,
    all,
    rows,
  );
  themed(() => found && show());
  await run();
}
