// How much memory a model needs for its weights and its cache, and what one more token costs.

import { cacheBytes, parameters, stepBytes, stepFlops } from "../live/costs.js";
import { chooser, controls, frame, keeper, labelled, make, powers, verdict, write } from "./parts.js";

const sizes = (V, C, layers, H, K, D, F, tied = false) => ({ V, C, layers, H, K, D, F, tied });
const MODELS = {
  "SmolLM2 135M": sizes(49_152, 576, 30, 9, 3, 64, 1536, true),
  "Llama 2 7B": sizes(32_000, 4096, 32, 32, 32, 128, 11_008),
  "Mistral 7B": sizes(32_000, 4096, 32, 32, 8, 128, 14_336),
  "Llama 3 8B": sizes(128_256, 4096, 32, 32, 8, 128, 14_336),
  "Llama 3 70B": sizes(128_256, 8192, 80, 64, 8, 128, 28_672),
};
const BITS = [32, 16, 8, 4].map((bits) => [bits, `${bits} bits`]);
const MACHINES = [8, 16, 24, 80]; // GB
const count = (value) => value.toLocaleString("en");
const large = (value, units) => {
  const place = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(value) / 3) - 1));
  return `${(value / 1000 ** (place + 1)).toPrecision(3)} ${units[place]}`;
};
const memory = (bytes) => large(bytes, ["kB", "MB", "GB", "TB"]);

export function mount(root) {
  const chosen = { name: "Llama 3 8B", K: 8, length: 8192, batch: 1, bits: 16, held: 16, rate: 1024 };
  const said = verdict();
  const [weights, cache] = ["weights", "cache"].map((kind) => make("span", { class: `widget-bar-${kind}` }));
  const bar = make("div", { class: "widget-bar", "aria-hidden": "true" }, weights, cache);

  function show() {
    const model = { ...MODELS[chosen.name], K: chosen.K };
    const { length, batch, bits, held, rate } = chosen;
    const [all, each] = [(parameters(model) * bits) / 8, cacheBytes(model, length, batch, held / 8)];
    const fits = MACHINES.find((size) => all + each <= size * 1e9);
    const room = fits ? `Weights and cache fit into ${fits} GB` : `Weights and cache need more than ${MACHINES.at(-1)} GB`;
    weights.style.width = `${(100 * all) / (all + each)}%`;
    cache.style.width = `${(100 * each) / (all + each)}%`;
    weights.textContent = all > each / 4 ? "weights" : "";
    cache.textContent = each > all / 4 ? "cache" : "";
    const texts = batch === 1 ? "one text" : `${batch} texts`;
    const sooner = (1000 * stepBytes(model, length, batch, bits / 8, held / 8)) / (rate * 1e9);
    write(
      said,
      `${large(parameters(model), ["thousand", "million", "billion"])} parameters take ${memory(all)}. The keys and values of ` +
        `${texts} of ${count(length)} tokens take ${memory(each)}. ${room}. One more token takes ` +
        `${large(stepFlops(model, length), ["thousand", "million", "billion"])} operations for each text. ` +
        `Reading the weights and the cache takes ${Number(sooner.toPrecision(3))} ms, so no step is faster than that.`,
    );
  }

  const turn = keeper(chosen, show);
  const heads = make("select", { onchange: (event) => turn("K")(Number(event.target.value)) });
  function choose(name) {
    const { H, K } = MODELS[name];
    const all = Array.from({ length: H }, (_, k) => k + 1).filter((k) => H % k === 0);
    heads.replaceChildren(
      ...all.map((k) => make("option", { value: k, selected: k === K }, k === K ? `${k}, as published` : String(k))),
    );
    Object.assign(chosen, { name, K });
    show();
  }
  const models = Object.keys(MODELS).map((name) => [name, name]);
  const power = (label, name, min, max) =>
    powers({ label, min, max, value: chosen[name], text: count, oninput: turn(name) });
  frame(
    root,
    "How much memory does a model need?",
    "choose as many key/value heads as query heads. How long can a text be now? Then try 16 texts at once, with weights of 4 bits.",
    controls(
      labelled("Model", chooser(models, chosen.name, choose)),
      labelled("Key/value heads K", heads),
      labelled("Bits of a weight", chooser(BITS, chosen.bits, (bits) => turn("bits")(Number(bits)))),
      labelled("Bits of a cached number", chooser(BITS.slice(0, 3), chosen.held, (bits) => turn("held")(Number(bits)))),
    ),
    controls(power("Tokens in a text", "length", 8, 17), power("Texts at once", "batch", 0, 6), power("Memory, GB per second", "rate", 4, 12)),
    bar,
    said,
  );
  choose(chosen.name);
}
