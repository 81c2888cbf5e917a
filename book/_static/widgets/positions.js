// The table of sinusoids, one of its rows, and how much every other row is like it.

import { products, sinusoids } from "../live/positions.js";
import { paint, themed } from "./heat.js";
import { controls, fitted, frame, make, number, picture, powers, slider, verdict, write } from "./parts.js";

const [LENGTH, ROW, LEFT, TOP, BOTTOM] = [64, 6, 30, 6, 38]; // ROW: pixels of a position
const HEIGHT = TOP + LENGTH * ROW + BOTTOM;

export function mount(root) {
  const chosen = { position: 20, C: 64 };
  const said = verdict();
  const image = make("canvas", { "aria-hidden": "true" });
  const place = make("div", { class: "widget-rows" }, image);
  let [rows, alike] = [[], []]; // the table, and each row's product with the chosen one

  function compute() {
    rows = sinusoids(LENGTH, chosen.C);
    paint(image, rows);
    show();
  }

  const draw = fitted(place, (width) => {
    const [middle, right] = [LEFT + Math.round(0.55 * (width - LEFT)), width - 8];
    const up = (t) => TOP + (t + 0.5) * ROW;
    const low = up(LENGTH) + 4;
    const zero = middle + 20 + 0.12 * (right - middle - 20); // from C = 4 on no product is below −0.12 of the largest
    const across = (value) => zero + value * (right - zero);
    image.style.cssText = `left: ${LEFT}px; top: ${TOP}px; width: ${middle - LEFT}px; height: ${LENGTH * ROW}px`;
    const text = (x, y, words, kind = "middle") => make("text", { x, y, class: kind }, words);
    const label = `Left, the sinusoids of ${LENGTH} positions, row ${chosen.position} marked; right, its products with all rows`;
    place.replaceChildren(
      image,
      picture(
        ...["widget-chart", label, width, HEIGHT],
        make("line", { class: "axis", x1: zero, x2: zero, y1: TOP, y2: low - 8 }),
        make("line", { class: "guide", x1: right, x2: right, y1: TOP, y2: low - 8 }),
        make("polyline", { class: "curve", points: alike.map((value, s) => `${across(value)},${up(s)}`).join(" ") }),
        make("rect", { class: "chosen", x: LEFT - 1, y: up(chosen.position) - ROW / 2 - 1, width: right - LEFT + 2, height: ROW + 2 }),
        make("circle", { cx: right, cy: up(chosen.position), r: 4 }),
        [0, 16, 32, 48, 63].map((t) => text(LEFT - 4, up(t) + 4, String(t), "end")),
        text((LEFT + middle) / 2, low + 8, `${chosen.C} coordinates`),
        [0, 1].map((value) => text(across(value), low + 8, String(value))),
        text((middle + width) / 2, low + 26, "PE(t) · PE(s) ÷ (C/2)"),
      ),
    );
  });

  function show() {
    const [t, half] = [chosen.position, chosen.C / 2];
    alike = products(rows, t).map((product) => product / half);
    const others = alike.map((value, s) => (s === t ? -Infinity : value));
    const most = others.indexOf(Math.max(...others));
    const apart = Math.abs(most - t);
    const near = t ? t - 1 : 1;
    write(
      said,
      `Position ${t}: its product with itself is C/2 = ${half}. Its neighbour ${near} has ${number(alike[near])} of that. ` +
        (apart === 1 ? "No position is more like it." : `But position ${most}, ${apart} away, is more like it: ${number(alike[most])}.`),
    );
    draw();
  }

  const position = slider({
    label: "Position t",
    ...{ min: 0, max: LENGTH - 1, step: 1, value: chosen.position },
    oninput: (t) => ((chosen.position = t), show()),
  });
  const coordinates = powers({
    label: "Coordinates C",
    ...{ min: 2, max: 9, value: chosen.C },
    text: String,
    oninput: (C) => ((chosen.C = C), compute()),
  });
  // the rows can be pointed at, too
  const point = (event) => {
    const t = Math.floor((event.clientY - place.getBoundingClientRect().top - TOP) / ROW);
    const input = position.querySelector("input");
    input.value = t; // no further than its ends
    input.dispatchEvent(new Event("input"));
  };
  place.addEventListener("pointerdown", point);
  place.addEventListener("pointermove", (event) => event.buttons && event.pointerType === "mouse" && point(event));
  frame(
    root,
    "A row for each position",
    "move the position: the curve moves along and keeps its form. Then fewer coordinates: which other row looks like yours?",
    controls(position, coordinates),
    place,
    make("p", { class: "widget-note" }, "A row is a position: orange is below zero, purple above."),
    said,
  );
  compute();
  themed(() => paint(image, rows));
}
