// From scores to weights: large scores saturate the softmax, and dividing by √D prevents it.

import { softmax, steepest } from "../live/layers.js";
import { chooser, controls, frame, hue, labelled, make, number, slider, table, verdict, write } from "./parts.js";

// How well each key matches: q·k in units of its standard deviation, which is √D.
const MATCHES = { man: 1, is: -0.5, riding: 0.5, a: -1.5, bike: 1.5 };
const SIZES = [4, 8, 16, 32, 64, 128, 256, 512, 1024];
const DIVISORS = [
  ["one", "1, which changes nothing"],
  ["root", "√D, as attention does"],
  ["own", "your own temperature"],
];
const plain = (value) => number(value, Number.isInteger(value) ? 0 : 2);

export function mount(root) {
  const words = Object.keys(MATCHES);
  const matches = Object.values(MATCHES);
  let [size, kind, temperature] = [64, "one", 1];
  const said = verdict();
  const cells = words.map(() => [0, 1, 2].map(() => make("td")));

  function show() {
    if (kind !== "own") temperature = kind === "root" ? Math.sqrt(size) : 1;
    const products = matches.map((match) => match * Math.sqrt(size));
    const weights = softmax(products, temperature);
    cells.forEach(([product, score, weight], s) => {
      write(product, number(products[s], 1));
      write(score, number(products[s] / temperature, 1));
      write(weight, number(weights[s], 3));
      weight.style.setProperty("--weight", weights[s].toFixed(3));
    });
    const best = weights.indexOf(Math.max(...weights));
    const slope = steepest(weights);
    const about = slope < 0.02 ? "the softmax is saturated" : slope < 0.1 ? "little gradient comes through" : "gradients come through";
    write(
      said,
      `D = ${size}, divided by ${plain(temperature)}: “${words[best]}” has the weight ${number(weights[best], 3)}. ` +
        `The largest derivative is ${number(slope, 3)}: ${about}.`,
    );
  }

  const divisor = chooser(DIVISORS, kind, (value) => {
    kind = value;
    own.hidden = value !== "own";
    show();
  });
  const own = slider({
    label: "Temperature",
    ...{ min: -2, max: 6, step: 0.25, value: 0 },
    text: (power) => plain(2 ** power),
    oninput: (power) => ((temperature = 2 ** power), show()),
  });
  own.hidden = true;
  const sizes = slider({
    label: "Head size D",
    ...{ min: 0, max: SIZES.length - 1, step: 1, value: SIZES.indexOf(size) },
    text: (place) => String(SIZES[place]),
    oninput: (place) => ((size = SIZES[place]), show()),
  });
  const rows = words.map((word, s) => {
    const match = make("input", {
      ...{ type: "range", min: -3, max: 3, step: 0.1, value: matches[s] },
      "aria-label": `How well “${word}” matches, in standard deviations`,
      oninput: ({ target }) => ((matches[s] = Number(target.value)), show()),
    });
    const [product, score, weight] = cells[s];
    weight.className = "widget-bar";
    return make("tr", {}, make("th", { scope: "row" }, word), make("td", {}, match), product, score, weight);
  });
  show();
  frame(
    root,
    "From scores to weights",
    "divide by √D, then make D larger. Then divide by 1, and make D larger again.",
    controls(sizes, labelled("Divided by", divisor), own),
    table({ class: "widget-table widget-bars" }, "", ["key", "match", [hue("q"), "·", hue("k")], "score", "weight"], rows),
    said,
  );
}
