// How the residual stream grows with depth, how much of the input is left in it, and how much of the gradient comes back.

import { overDepth } from "../live/residual.js";
import { chooser, controls, fitted, frame, keeper, labelled, make, number, picture, slider, small, verdict, write } from "./parts.js";

const NAMES = { pre: "pre-norm", post: "post-norm", none: "no norm" };
const [HEIGHT, LEFT, TOP, BOTTOM] = [150, 44, 24, 34];
const short = (value) => (value >= 1000 || value < 0.005 ? small(value, 1) : number(value));

// One bar for each position in the stack. The part given by `parts` has a stronger colour.
function bars({ label, title, name, values, parts, width }) {
  const top = Math.max(...values);
  const low = HEIGHT - BOTTOM;
  const step = (width - LEFT) / values.length;
  const bar = (kind, share) => (value, l) => {
    const tall = (value / share) * (low - TOP);
    return make("rect", { class: kind, x: LEFT + l * step, y: low - tall, width: Math.max(1, step - (step > 6 ? 2 : 0)), height: tall });
  };
  const text = (x, y, words, kind = "") => make("text", { x, y, class: kind }, words);
  return picture(
    ...["widget-chart", label, width, HEIGHT],
    values.map(bar("whole", top)),
    parts.map(bar("part", top)),
    make("polyline", { class: "axis", points: `${LEFT},${TOP} ${LEFT},${low} ${width},${low}` }),
    [text(LEFT - 4, TOP + 8, short(top), "end"), text(LEFT - 4, low, "0", "end")],
    [text(LEFT, TOP - 10, title), text(LEFT + step / 2, low + 14, "0", "middle"), text(width - step / 2, low + 14, values.length - 1, "middle")],
    text((LEFT + width) / 2, low + 28, name, "middle"),
  );
}

export function mount(root) {
  const chosen = { wiring: "pre", n: 16, variance: 0.5 };
  const said = verdict();
  const place = make("div", { class: "widget-depth" });
  const layers = () => overDepth(chosen.wiring, chosen.n, chosen.variance);

  const draw = fitted(place, (width) => {
    const all = layers();
    const [sizes, gradients] = [all.map(({ size }) => size), all.map(({ gradient }) => gradient)];
    place.replaceChildren(
      bars({
        label: "The size of the residual stream after each sublayer, and the part of it that comes from the input",
        title: "size of the stream (stronger colour: the input in it)",
        name: "after sublayer",
        values: sizes,
        parts: all.map(({ size, left }) => size * left),
        width,
      }),
      bars({
        label: "How much of the gradient arrives before each sublayer, along the residual path",
        title: "gradient that comes back along the residual path",
        name: "after sublayer (the loss is on the right)",
        values: gradients,
        parts: gradients,
        width,
      }),
    );
  });

  function show() {
    const { n, variance, wiring } = chosen;
    const all = layers();
    const name = NAMES[wiring][0].toUpperCase() + NAMES[wiring].slice(1);
    write(
      said,
      `${name}, ${n === 1 ? "1 sublayer that adds" : `${n} sublayers that each add`} σ² = ${number(variance)}. The stream has the size ${short(all[n].size)}, and ` +
        `its correlation with the input is ${short(all[n].left)}. Along the residual path, ` +
        `${short(all[0].gradient)} of the gradient comes back to the input.`,
    );
    draw();
  }

  const turn = keeper(chosen, show);
  const depth = { label: "Sublayers n", min: 1, max: 64, step: 1, value: chosen.n };
  const share = { label: "Variance σ² added by each", min: 0.05, max: 2, step: 0.05, value: chosen.variance };
  frame(
    root,
    "A stack, layer by layer",
    "choose post-norm. How much of the gradient comes back to the input? Then compare the two at 64 sublayers, and try no norm.",
    controls(
      labelled("Wiring", chooser(Object.entries(NAMES), chosen.wiring, turn("wiring"))),
      slider({ ...depth, oninput: turn("n") }),
      slider({ ...share, text: (value) => number(value), oninput: turn("variance") }),
    ),
    place,
    said,
  );
  show();
}
