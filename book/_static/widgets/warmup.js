// Recorded training runs: how the loss falls with a learning rate, a warm-up, and norms in one of two places.

import { curve } from "./chart.js";
import { chooser, controls, data, fitted, frame, keeper, labelled, make, number, slider, verdict, write } from "./parts.js";

const WIRINGS = { post: "post-norm", pre: "pre-norm" };
const STUCK = 0.1; // nats below the frequencies of characters that a model must get to count as one that has learned more

export async function mount(root) {
  const { rates, warmups, at, frequencies, losses } = await data("data/warmups.json");
  const chosen = { wiring: "post", rate: 1, warmup: 0 }; // indices into the record
  const said = verdict();
  const graph = make("div", { class: "widget-depth" });
  const steps = { from: 0, to: at.at(-1), name: "step", ticks: [0, 100, 200, 300, 400].map((step) => [step, String(step)]) };
  const seeds = (warmup) => losses[chosen.wiring][chosen.rate][warmup].map((run) => run.map((loss, n) => [at[n], loss]));

  const draw = fitted(graph, (width) => {
    const [rate, warmup] = [rates[chosen.rate], warmups[chosen.warmup]];
    const [run, ...also] = seeds(chosen.warmup);
    graph.replaceChildren(
      curve({
        label: "The learning rate at each step",
        points: [[0, warmup ? 0 : rate], [warmup, rate], [steps.to, rate]],
        x: { ...steps, name: "" },
        y: { from: 0, to: 1.1 * rate, name: "learning rate", ticks: [0, rate].map((value) => [value, String(value)]) },
        ...{ width, height: 110 },
      }),
      curve({
        label: "The validation loss of three seeds with this warm-up; the faint lines are the runs with the other two",
        ...{ points: run, also, faint: warmups.flatMap((_, other) => (other === chosen.warmup ? [] : seeds(other))) },
        ...{ level: frequencies, x: steps, width },
        y: { from: 2.3, to: 4.5, name: "loss (dashed: frequencies of the characters)", ticks: [2.5, 3, 3.5, 4, 4.5].map((loss) => [loss, number(loss, 1)]) },
      }),
    );
  });

  function show() {
    const ends = losses[chosen.wiring][chosen.rate][chosen.warmup].map((run) => run.at(-1));
    const stuck = ends.filter((loss) => loss > frequencies - STUCK).length;
    const learned = stuck ? `In ${stuck} of them, the model has learned little more than how frequent each character is` : "All of them have learned more than how frequent each character is";
    const [name, warmup, shown] = [WIRINGS[chosen.wiring], warmups[chosen.warmup], ends.map((loss) => number(loss))];
    write(
      said,
      `${name[0].toUpperCase()}${name.slice(1)}, learning rate ${rates[chosen.rate]}, ${warmup ? `${warmup} steps of` : "no"} warm-up: ` +
        `after ${steps.to} steps, the losses of the three runs are ${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}. ${learned} (${number(frequencies)}).`,
    );
    draw();
  }

  const turn = keeper(chosen, show);
  const along = (name, label, values) =>
    slider({ label, min: 0, max: values.length - 1, step: 1, value: chosen[name], text: (place) => String(values[place]), oninput: turn(name) });
  frame(
    root,
    "Train a small language model, with and without warm-up",
    "move the warm-up to 100 steps. Then raise the learning rate to 0.01. Which warm-up does it need? And how much warm-up does pre-norm need?",
    controls(
      labelled("Norms", chooser(Object.entries(WIRINGS), chosen.wiring, turn("wiring"))),
      along("rate", "Learning rate", rates),
      along("warmup", "Steps of warm-up", warmups),
    ),
    graph,
    said,
  );
  show();
}
