// Curves as a picture. The text next to it says in words what it shows.

import { make, picture } from "./parts.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [56, 12, 14, 34];

// An axis has two ends, a name and labelled values. The `points` of the curve and the marked point are pairs [x, y];
// `also` holds more curves of its kind, `faint` those to compare it with, and `level` is the height of a dashed line.
export function curve({ label, points, also = [], faint = [], mark, level, x, y, width, height = 190 }) {
  const across = (value) => LEFT + ((value - x.from) / (x.to - x.from)) * (width - LEFT - RIGHT);
  const up = (value) => height - BOTTOM - ((value - y.from) / (y.to - y.from)) * (height - TOP - BOTTOM);
  const [first, last, low, high] = [across(x.from), across(x.to), up(y.from), up(y.to)];
  const texts = [
    ...x.ticks.map(([at, text]) => make("text", { x: across(at), y: low + 14, class: "middle" }, text)),
    ...y.ticks.map(([at, text]) => make("text", { x: first - 5, y: up(at) + 4, class: "end" }, text)),
    make("text", { x: (first + last) / 2, y: height - 4, class: "middle" }, x.name),
    make("text", { x: first + 6, y: TOP - 3 }, y.name),
  ];
  const line = (kind) => (pairs) => make("polyline", { class: kind, points: pairs.map(([a, b]) => `${across(a)},${up(b)}`).join(" ") });
  const guide = (x1, y1, x2, y2) => make("line", { class: "guide", x1, y1, x2, y2 });
  const marked = mark && [across(mark[0]), up(mark[1])];
  const shapes = [
    make("polyline", { class: "axis", points: `${first},${high} ${first},${low} ${last},${low}` }),
    level == null ? [] : guide(first, up(level), last, up(level)),
    faint.map(line("faint")),
    [points, ...also].map(line("curve")),
    marked ? [guide(marked[0], low, ...marked), guide(first, marked[1], ...marked), make("circle", { cx: marked[0], cy: marked[1], r: 5 })] : [],
  ].flat();
  return picture("widget-chart", label, width, height, shapes, texts);
}

// Point at the curve in this place, or drag along it: `act` is called with the value on the axis x.
export function draggable(place, x, act) {
  const follow = (event) => {
    if (event.type === "pointerdown") place.setPointerCapture(event.pointerId);
    if (!event.buttons) return;
    const { left, width } = place.getBoundingClientRect();
    const share = (event.clientX - left - LEFT) / (width - LEFT - RIGHT);
    act(x.from + Math.min(1, Math.max(0, share)) * (x.to - x.from));
  };
  for (const name of ["pointerdown", "pointermove"]) place.addEventListener(name, follow);
  place.classList.add("widget-draggable");
}
