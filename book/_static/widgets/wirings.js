// A recorded grid: how four wirings learn at a rate, after a warm-up.

import { curves } from "./chart.js";
import { controls, data, fitted, frame, make, number, slider, verdict, write } from "./parts.js";

export async function mount(root) {
  const { rates, warmups, at, unigram, losses } = await data("data/wirings.json");
  const chosen = { rate: 2, warmup: 0 }; // places in the grid
  const [said, graph] = [verdict(), make("div")];
  const learned = (name) => losses[name][chosen.rate][chosen.warmup];
  const draw = fitted(graph, (width) =>
    graph.replaceChildren(
      curves({
        label: "Validation loss over the steps, a curve for each wiring; the level is a model that knows frequencies alone",
        lines: Object.keys(losses).map((name) => [name, at.map((step, n) => [step, learned(name)[n]])]),
        level: unigram,
        x: { from: 0, to: at.at(-1), name: "step", ticks: [0, 40, 80, 120].map((step) => [step, String(step)]) },
        y: { from: 2.4, to: 4.6, name: "loss (nats per character)", ticks: [2.5, 3, 3.5, 4, 4.5].map((y) => [y, number(y, 1)]) },
        width,
      }),
    ),
  );
  function show() {
    const ends = Object.keys(losses).map((name) => `${name} ${number(learned(name).at(-1))}`);
    const warmup = warmups[chosen.warmup] ? `after a warm-up of ${warmups[chosen.warmup]} steps` : "without a warm-up";
    write(said, `At a rate of ${rates[chosen.rate]} ${warmup}, losses after ${at.at(-1)} steps: ${ends.join(", ")}. Frequencies alone give ${number(unigram)}.`);
    draw();
  }
  const along = (label, name, values) =>
    slider({
      label,
      ...{ min: 0, max: values.length - 1, step: 1, value: chosen[name] },
      text: (place) => String(values[place]),
      oninput: (place) => ((chosen[name] = place), show()),
    });
  frame(
    root,
    "Six rates, three warm-ups, four wirings",
    "find a rate at which post-norm learns more than frequencies. Then the highest rate that each of the others bears. Does a warm-up help there?",
    controls(along("Learning rate", "rate", rates), along("Warm-up, in steps", "warmup", warmups)),
    graph,
    said,
  );
  show();
}
