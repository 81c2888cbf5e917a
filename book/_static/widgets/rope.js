// Rotary positions: in each plane, two hands turn with their positions, and their score depends only on the distance.

import { planes, score } from "../live/rope.js";
import { curve, draggable } from "./chart.js";
import { button, controls, fitted, frame, hue, make, number, picture, slide, slider, table, verdict, write } from "./parts.js";

const [Q, K] = [
  [1, 0.5, 0, -1],
  [0.5, 2, 1, 0],
]; // the numbers from the chapter
const MOST = 120;
const DIAL = { size: 140, hand: 54, longest: 2 };
const MOVES = [-10, -1, 1, 10, 100];

// One plane: the query's hand is solid, the key's is dashed.
function dial({ q, k, frequency }, i) {
  const middle = DIAL.size / 2;
  const hand = ([x, y], name) => {
    const long = DIAL.hand / DIAL.longest;
    const [endX, endY] = [middle + x * long, middle - y * long];
    const beyond = long + 12 / Math.hypot(x, y); // the letter comes after the end of the hand
    const [textX, textY] = [middle + x * beyond, middle - y * beyond + 4];
    return [
      make("line", { class: name, x1: middle, y1: middle, x2: endX, y2: endY }),
      make("circle", { class: name, cx: endX, cy: endY, r: 4 }),
      make("text", { x: textX, y: textY, class: "middle" }, name),
    ];
  };
  const round = make("circle", { class: "rim", cx: middle, cy: middle, r: DIAL.hand });
  const label = `Plane ${i}: the hands of the query and the key; the table contains their angles`;
  const drawn = picture("widget-dial", label, DIAL.size, DIAL.size, round, hand(k, "k"), hand(q, "q"));
  return make("div", {}, drawn, make("p", {}, `plane ${i}: θ = ${number(frequency)}`));
}

export function mount(root) {
  const at = { q: 2, k: 5 };
  const said = verdict();
  const [dials, graph] = [make("div", { class: "widget-dials" }), make("div")];
  const cells = planes(Q, 0, K, 0).map(() => [0, 1, 2].map(() => make("td")));
  const x = { from: -MOST, to: MOST, name: "distance s − t" };
  const distances = Array.from({ length: 2 * MOST + 1 }, (_, n) => n - MOST);
  // at a negative distance the key comes before the query; positions start at 0, so both are as low as they can be
  const scores = distances.map((d) => [d, score(Q, Math.max(-d, 0), K, Math.max(d, 0))]);

  const draw = fitted(graph, (width) => {
    const distance = at.k - at.q;
    const ticks = (values) => values.map((value) => [value, number(value, 0)]);
    graph.replaceChildren(
      curve({
        label: "The score at each distance, with the chosen distance marked",
        points: scores,
        mark: [distance, score(Q, at.q, K, at.k)],
        x: { ...x, ticks: ticks([-100, -50, 0, 50, 100]) },
        y: { from: -4, to: 4, name: "score", ticks: ticks([-4, -2, 0, 2, 4]) },
        width,
      }),
    );
  });

  const degrees = ([x, y]) => `${number((Math.atan2(y, x) * 180) / Math.PI, 1)}°`;
  function show(moved = 0) {
    const parts = planes(Q, at.q, K, at.k);
    dials.replaceChildren(...parts.map(dial));
    cells.forEach(([query, key, adds], i) => {
      write(query, degrees(parts[i].q));
      write(key, degrees(parts[i].k));
      write(adds, number(parts[i].adds, 6));
    });
    const found = number(score(Q, at.q, K, at.k), 6);
    const stayed = moved ? ` Both moved by ${number(moved, 0)}: the hands turned, but the score stayed the same.` : "";
    write(said, `Positions ${at.q} and ${at.k}, distance ${number(at.k - at.q, 0)}: the score is ${found}.${stayed}`);
    draw();
  }

  const place = (name, label) =>
    slider({
      label,
      ...{ min: 0, max: MOST, step: 1, value: at[name] },
      oninput: (value) => {
        if (value === at[name]) return;
        at[name] = value;
        show();
      },
    });
  const sliders = { q: place("q", "Position t of the query"), k: place("k", "Position s of the key") };
  // as far as the query and the key can both go
  function move(asked) {
    const far = Math.max(-Math.min(at.q, at.k), Math.min(asked, MOST - Math.max(at.q, at.k)));
    for (const name of ["q", "k"]) {
      at[name] += far;
      slide(sliders[name], at[name]);
    }
    show(far);
  }
  // the query moves only if the key would have to go beyond the ends
  draggable(graph, x, (distance) => {
    const d = Math.round(distance);
    slide(sliders.q, Math.min(Math.max(at.q, -d), MOST - d, MOST));
    slide(sliders.k, at.q + d);
  });
  const named = (by) => `${by < 0 ? "−" : "+"}${Math.abs(by)}`;
  const moves = MOVES.map((by) =>
    button(named(by), () => move(by), { class: "widget-button widget-small", "aria-label": `Move both by ${named(by)}` }),
  );
  const rows = cells.map((line, i) => make("tr", {}, make("th", { scope: "row" }, String(i)), line));
  frame(
    root,
    "Two hands that turn",
    "move only the query, and the score changes. Move the query and the key together, and it stays the same.",
    controls(Object.values(sliders), make("div", { class: "widget-field" }, make("span", {}, "Move both"), controls(moves))),
    said,
    make(
      "div",
      { class: "widget-side" },
      dials,
      table({ class: "widget-table" }, "", ["plane", ["angle of ", hue("q")], ["angle of ", hue("k")], "adds to the score"], rows),
    ),
    graph,
  );
  show();
}
