// Three hidden units of a gated network: the gate of each, its value, and their product.

import { GATES, gated } from "../live/gate.js";
import { chooser, controls, frame, keeper, labelled, make, number, scroller, table, verdict, write } from "./parts.js";

// the numbers that arrive in the chapter's example, x = (1, 2)
const [START_GATES, START_VALUES] = [
  [3, -2, 2],
  [3, 7, -2],
];
const REACH = 24; // of a bar
const MOST = 8; // of a slider
const plain = (value) => number(Math.abs(value) < 0.005 ? 0 : value); // no −0.00

export function mount(root) {
  const chosen = { name: "ReLU", gates: [...START_GATES], values: [...START_VALUES] };
  const said = verdict();
  const units = START_GATES.map((_, unit) => {
    const range = (kind, label) =>
      make("input", {
        ...{ type: "range", min: -MOST, max: MOST, step: 0.5, value: chosen[kind][unit], "aria-label": `${label} of unit ${unit + 1}` },
        oninput: ({ target }) => {
          chosen[kind][unit] = Number(target.value);
          show();
        },
      });
    return {
      inputs: { gates: range("gates", "Input of the gate"), values: range("values", "Value") },
      cells: ["span", "td", "span", "td"].map((tag, n) => make(tag, n === 3 ? { class: "widget-signed" } : {})),
    };
  });

  function show() {
    const { name, gates, values } = chosen;
    const open = gates.map(GATES[name]);
    const products = gated(name, gates, values);
    units.forEach(({ inputs, cells }, unit) => {
      [gates, open, values, products].forEach((numbers, n) => write(cells[n], plain(numbers[unit])));
      for (const [kind, input] of Object.entries(inputs)) input.setAttribute("aria-valuetext", plain(chosen[kind][unit]));
      const end = 50 + (50 * Math.max(-REACH, Math.min(REACH, products[unit]))) / REACH;
      cells[3].style.setProperty("--from", `${Math.min(50, end)}%`);
      cells[3].style.setProperty("--to", `${Math.max(50, end)}%`);
    });
    const shut = units.map((_, unit) => unit).filter((unit) => open[unit] === 0);
    const which = shut.map((unit) => unit + 1).join(" and ");
    const closed = shut.length
      ? `The gate${shut.length > 1 ? "s" : ""} of unit ${which} ${shut.length > 1 ? "are" : "is"} shut, so the value there makes no difference.`
      : "No gate is shut, so each value makes a difference.";
    write(said, `${name}: the gates are ${open.map(plain).join(", ")}, and the products are ${products.map(plain).join(", ")}. ${closed}`);
  }

  const head = ["unit", "gate input", "gate", "value", "product"];
  const rows = units.map(({ inputs, cells: [gate, open, value, product] }, unit) =>
    make("tr", {}, make("th", { scope: "row" }, String(unit + 1)), make("td", {}, inputs.gates, gate), open, make("td", {}, inputs.values, value), product),
  );
  show();
  frame(
    root,
    "A gate and what it lets through",
    "move the value of unit 2, whose gate is shut. Then open that gate a little. With SiLU, is a gate with the input −2 still shut?",
    controls(labelled("Function f of the gate", chooser(Object.keys(GATES).map((name) => [name, name]), chosen.name, keeper(chosen, show)("name")))),
    scroller("The three units", table({ class: "widget-table widget-bars" }, "", head, rows)),
    said,
  );
}
