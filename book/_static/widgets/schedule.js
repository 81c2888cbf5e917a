// The learning rate over the steps: warm-up, peak and decay, and its value at any step.

import { cosine, inverseSqrt, paperSchedule } from "../live/schedule.js";
import { curve } from "./chart.js";
import { chooser, controls, fitted, frame, keeper, labelled, make, number, slider, small, verdict, write } from "./parts.js";

const STEPS = 20_000; // of the training
const KINDS = [
  ["paper", "1/√t, as in the 2017 paper"],
  ["root", "1/√t with a peak of your own"],
  ["cosine", "half a cosine"],
];
const MADE = {
  paper: ({ width, warmup }) => paperSchedule(width, warmup),
  root: ({ peak, warmup }) => inverseSqrt(peak, warmup),
  cosine: ({ peak, warmup, final }) => cosine(peak, warmup, STEPS, final),
};
const count = (value) => value.toLocaleString("en");
const short = (value) => small(value, 1).replace(".0", "").replaceAll(" ", "");

export function mount(root) {
  const chosen = { kind: "paper", width: 512, peak: 1e-3, warmup: 4000, final: 0.1, step: 1000 };
  const said = verdict();
  const graph = make("div");
  const rate = () => MADE[chosen.kind](chosen);

  const draw = fitted(graph, (width) => {
    const at = rate();
    const steps = Array.from({ length: 401 }, (_, n) => Math.max(1, (n * STEPS) / 400));
    const every = [...steps, chosen.warmup].sort((a, b) => a - b);
    const top = 1.15 * at(chosen.warmup);
    const power = 10 ** Math.floor(Math.log10(top));
    const unit = [0.2, 0.5, 1, 2].map((part) => part * power).find((part) => top / part < 6);
    const lines = Array.from({ length: Math.floor(top / unit) }, (_, n) => (n + 1) * unit);
    graph.replaceChildren(
      curve({
        label: "The learning rate over the steps, with the chosen step marked",
        points: every.map((step) => [step, at(step)]),
        mark: [chosen.step, at(chosen.step)],
        x: { from: 0, to: STEPS, name: "step t", ticks: [0, 5000, 10_000, 15_000].map((step) => [step, count(step)]) },
        y: { from: 0, to: top, name: "rate", ticks: [[0, "0"], ...lines.map((value) => [value, short(value)])] },
        width,
      }),
    );
  });

  function show() {
    const [at, { step, warmup }] = [rate(), chosen];
    const [now, peak] = [at(step), at(warmup)];
    const phase = step < warmup ? "It still rises" : step === warmup ? "This is the peak" : "It falls";
    write(
      said,
      `At step ${count(step)} the rate is ${small(now)}, ${number((100 * now) / peak, 0)} % of the peak. ${phase}. ` +
        `The peak is ${small(peak)}, at step ${count(warmup)}.`,
    );
    draw();
  }

  const turn = keeper(chosen, show);
  const steps = (name, label, step, max) =>
    slider({
      label,
      ...{ min: 0, max, step, value: chosen[name] },
      text: (value) => count(Math.max(1, value)),
      oninput: (value) => turn(name)(Math.max(1, value)),
    });
  const sizes = [128, 256, 512, 1024].map((size) => [size, String(size)]);
  const fields = {
    width: labelled("Width C of the model", chooser(sizes, chosen.width, (value) => turn("width")(Number(value)))),
    peak: slider({
      label: "Peak",
      ...{ min: -4.5, max: -2, step: 0.05, value: Math.log10(chosen.peak) },
      text: (power) => small(10 ** power),
      oninput: (power) => turn("peak")(10 ** power),
    }),
    final: slider({
      label: "Share of the peak at the end",
      ...{ min: 0, max: 1, step: 0.05, value: chosen.final },
      text: (value) => number(value),
      oninput: turn("final"),
    }),
  };
  const used = { paper: ["width"], root: ["peak"], cosine: ["peak", "final"] };
  function choose(kind) {
    chosen.kind = kind;
    for (const [name, field] of Object.entries(fields)) field.hidden = !used[kind].includes(name);
    show();
  }
  const kinds = labelled("Curve", chooser(KINDS, chosen.kind, choose));
  frame(
    root,
    "A rate that rises, then falls",
    "double the warm-up. Where is the peak now, and how high? Which curve is lower at the last step?",
    controls(kinds, Object.values(fields)),
    controls(steps("warmup", "Warm-up, in steps", 100, 10_000), steps("step", "Step t", 50, STEPS)),
    graph,
    said,
  );
  choose(chosen.kind);
}
