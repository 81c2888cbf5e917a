// The first loss of a fresh model, and what becomes of it if all the logits are multiplied by a number.

import { tokenLoss } from "../live/loss.js";
import { curve, draggable } from "./chart.js";
import { controls, data, fitted, frame, make, number, slide, slider, verdict, write } from "./parts.js";

const [MOST, STEP] = [8, 0.25]; // of the factor
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

export async function mount(root) {
  const { logits, targets } = await data("data/first_loss.json");
  const V = logits[0].length;
  let factor = 1;
  const said = verdict();
  const graph = make("div");
  const at = (times) => logits.map((row, t) => tokenLoss(row.map((logit) => logit * times), targets[t]));
  const first = (times) => mean(at(times).map(({ plain }) => plain));
  const points = Array.from({ length: MOST / STEP + 1 }, (_, n) => [n * STEP, first(n * STEP)]);
  const x = { from: 0, to: MOST, name: "factor of the logits", ticks: [0, 2, 4, 6, 8].map((value) => [value, String(value)]) };
  const top = Math.ceil(points.at(-1)[1] / 5) * 5;

  const draw = fitted(graph, (width) =>
    graph.replaceChildren(
      curve({
        label: "The first loss, by the factor of the logits; the dashed line is ln V",
        ...{ points, mark: [factor, first(factor)], level: Math.log(V), x, width },
        y: { from: 0, to: top, name: "first loss, in nats per token", ticks: [0, top / 2, top].map((value) => [value, String(value)]) },
      }),
    ),
  );

  function show() {
    const [loss, floor] = [first(factor), Math.log(V)];
    const likeliest = mean(at(factor).map(({ p }) => Math.max(...p)));
    write(
      said,
      `Logits × ${number(factor)}: the first loss is ${number(loss)}, which is ${number(loss - floor)} above ln ${V} = ${number(floor)}. ` +
        `On average, the model gives its favourite token a probability of ${number(100 * likeliest, 1)} %.`,
    );
    draw();
  }
  const times = slider({
    label: "Multiply all logits by",
    ...{ min: 0, max: MOST, step: STEP, value: factor },
    text: (value) => number(value),
    oninput: (value) => ((factor = value), show()),
  });
  draggable(graph, x, (value) => slide(times, value));
  frame(
    root,
    "Break the first loss",
    "make the logits three times as large. Would you notice it from the loss? Then make them all 0. Which loss is left?",
    controls(times),
    graph,
    said,
  );
  show();
}
