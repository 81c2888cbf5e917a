// What LayerNorm and RMSNorm make of seven numbers.

import { layerNorm, rmsNorm } from "../live/layers.js";
import { button, frame, make, number, table, verdict, write } from "./parts.js";

const START = [1, 4, -2, 3, 0, 6, 2];
const all = (value) => ({ values: START.map(() => value) });
const NORMS = {
  LayerNorm: (x) => layerNorm({ weight: all(1), bias: all(0) }, x, 1e-5),
  RMSNorm: (x) => rmsNorm({ weight: all(1) }, x, 1e-6),
};
const CHANGES = {
  "+5": (value) => value + 5,
  "−5": (value) => value - 5,
  "×3": (value) => value * 3,
  "÷3": (value) => value / 3,
};
const REACH = 2.5; // of a bar: after a norm, none of seven numbers is farther from 0 than √7
const shown = (value) => {
  if (Math.abs(value) >= 100) return value.toPrecision(3).replace("-", "−");
  return number(Math.abs(value) < 0.005 ? 0 : value); // no −0.00
};
const statistics = (x) => {
  const mean = x.reduce((sum, value) => sum + value, 0) / x.length;
  return [mean, Math.sqrt(x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length)];
};

export function mount(root) {
  let x = START;
  const said = verdict();
  const rows = START.map((_, c) => {
    const input = make("input", {
      ...{ type: "range", min: -10, max: 10, step: 0.5, "aria-label": `Entry ${c + 1}` },
      oninput: ({ target }) => {
        x = x.with(c, Number(target.value));
        show();
      },
    });
    return { input, value: make("td"), bars: Object.keys(NORMS).map(() => make("td", { class: "widget-signed" })) };
  });

  // `change` is the name of the button that was pressed, and `before` holds the numbers before that
  function show(change, before) {
    const after = Object.values(NORMS).map((norm) => norm(x));
    rows.forEach(({ input, value, bars }, c) => {
      input.value = x[c]; // the slider stops at its ends
      input.setAttribute("aria-valuetext", shown(x[c]));
      write(value, shown(x[c]));
      bars.forEach((bar, kind) => {
        write(bar, shown(after[kind][c]));
        const end = 50 + (50 * after[kind][c]) / REACH;
        bar.style.setProperty("--from", `${Math.min(50, end)}%`);
        bar.style.setProperty("--to", `${Math.max(50, end)}%`);
      });
    });
    const effects = Object.entries(NORMS).map(([name, norm], kind) => {
      const moved = Math.max(...norm(before ?? x).map((value, c) => Math.abs(value - after[kind][c])));
      return moved < 0.005 ? `${name} returns the same numbers` : `${name} returns other numbers, up to ${number(moved)} away`;
    });
    const [own, layer, rms] = [x, ...after].map((row) => statistics(row).map(shown));
    write(
      said,
      (change ? `All ${change}: ${effects.join("; ")}. ` : "") +
        `Mean ${own[0]}, standard deviation ${own[1]}. After LayerNorm they are ${layer.join(" and ")}, after RMSNorm ${rms.join(" and ")}.`,
    );
  }

  function press(name, change) {
    const before = x;
    x = x.map(change);
    show(name, before);
  }
  const changes = Object.entries(CHANGES).map(([name, change]) =>
    button(name, () => press(name, change), { "aria-label": `All ${name}` }),
  );
  show();
  frame(
    root,
    "What a norm takes away",
    "press +5, then ×3. Which of the two norms returns other numbers? Then press ÷3 eight times. Do the norms still help with numbers that small?",
    make("div", { class: "widget-row", role: "group", "aria-label": "Change all seven numbers" }, changes),
    table(
      { class: "widget-table widget-bars" },
      "",
      ["entry", "change it", "x", ...Object.keys(NORMS)],
      rows.map(({ input, value, bars }, c) =>
        make("tr", {}, make("th", { scope: "row" }, String(c + 1)), make("td", {}, input), value, bars),
      ),
    ),
    said,
  );
}
