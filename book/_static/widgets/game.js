// Rock, paper, scissors: a layer of self-attention learns the game while you watch.

import { NAMES, descend, first, looks, round } from "../live/game.js";
import { curve } from "./chart.js";
import { heatTable } from "./heat.js";
import { button, chooser, controls, fitted, frame, labelled, make, number, powers, verdict, write } from "./parts.js";

const [STEPS, ROUNDS, EACH] = [400, 97, 4]; // EACH: steps between two redraws
const FIRST = { three: "three projections", shared: "one shared by queries and keys" };

export function mount(root) {
  const chosen = { kind: "three", rate: 0.5 };
  const said = verdict();
  const [graph, table] = [make("div"), make("div")];
  let [weights, errors, running] = [null, [], false];

  const draw = fitted(graph, (width) => {
    const points = errors.length ? errors.map((error, step) => [step + 1, error < 2 ? error : 2]) : [[0, 1]];
    graph.replaceChildren(
      curve({
        label: "The error at each step",
        points,
        mark: points.at(-1),
        x: { from: 0, to: STEPS, name: "step", ticks: [0, 100, 200, 300, 400].map((step) => [step, String(step)]) },
        y: { from: 0, to: 2, name: "mean squared error", ticks: [0, 1, 2].map((value) => [value, String(value)]) },
        width,
      }),
    );
  });
  const showLooks = () => {
    const shares = looks(weights);
    const caption = "Attention weights, in %: rows attend to columns";
    table.replaceChildren(heatTable({ rows: NAMES, columns: NAMES, weights: shares, caption }));
    return shares;
  };
  const report = () => {
    const [shares, last] = [showLooks(), errors.slice(-50)];
    const error = last.reduce((sum, one) => sum + one, 0) / last.length;
    const best = shares.map((row) => row.indexOf(Math.max(...row)));
    const sure = Math.min(...shares.map((row) => Math.max(...row)));
    const whom = NAMES.map((name, kind) => `${name} to ${NAMES[best[kind]]}`).join(", ");
    const seen = sure > 0.5 ? `Each attends mostly to one: ${whom}.` : "Each attends to several.";
    const state = Number.isFinite(error) ? `The mean error of the last 50 steps is ${number(error, 3)}` : "The error is not a number any more, because the learning rate is too high";
    write(said, `${errors.length} steps. ${state}. ${Number.isFinite(error) ? seen : ""}`.trim());
  };

  function clear() {
    running = false;
    errors = [];
    weights = first(Math.random, chosen.kind === "shared");
    go.textContent = "Train";
    showLooks();
    draw();
    write(said, `The layer is untrained. It will train for ${STEPS} steps of ${ROUNDS} rounds.`);
  }
  function advance() {
    if (!running) return;
    for (let n = 0; n < EACH && errors.length < STEPS; n++) {
      const rounds = Array.from({ length: ROUNDS }, () => round(Math.random));
      errors.push(descend(weights, rounds, chosen.rate));
    }
    showLooks();
    draw();
    if (errors.length < STEPS) return void requestAnimationFrame(advance);
    running = false;
    go.textContent = "Train again";
    report();
  }
  const go = button("Train", () => {
    if (running) {
      running = false;
      go.textContent = "Continue";
      return report();
    }
    if (errors.length === STEPS) clear();
    running = true;
    write(said, "Training …");
    go.textContent = "Stop";
    advance();
  });
  const kinds = chooser(Object.entries(FIRST), chosen.kind, (kind) => ((chosen.kind = kind), clear()));
  const rate = powers({
    label: "Learning rate",
    ...{ min: -5, max: 4, value: chosen.rate },
    text: number,
    oninput: (value) => ((chosen.rate = value), errors.length === STEPS && clear()),
  });
  frame(
    root,
    "A layer learns a game",
    "train the layer. Then let queries and keys share one projection. Which error remains? Then try a learning rate of 16.",
    controls(labelled("Projections", kinds), rate, go),
    graph,
    table,
    said,
  );
  clear();
}
