// A curve with a marked point, as a picture; what it shows is said in words beside it.

import { make } from "./parts.js";

const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [190, 56, 12, 14, 34];

// `points` and `mark` are pairs [x, y]; an axis has its ends, its name and the values that are written.
export function curve({ label, points, mark, x, y, width }) {
  const across = (value) => LEFT + ((value - x.from) / (x.to - x.from)) * (width - LEFT - RIGHT);
  const up = (value) => HEIGHT - BOTTOM - ((value - y.from) / (y.to - y.from)) * (HEIGHT - TOP - BOTTOM);
  const [left, right, low, high] = [across(x.from), across(x.to), up(y.from), up(y.to)];
  const lines = [
    make("polyline", { class: "axis", points: `${left},${high} ${left},${low} ${right},${low}` }),
    make("polyline", { class: "curve", points: points.map(([a, b]) => `${across(a)},${up(b)}`).join(" ") }),
    make("line", { class: "guide", x1: across(mark[0]), x2: across(mark[0]), y1: low, y2: up(mark[1]) }),
    make("line", { class: "guide", x1: left, x2: across(mark[0]), y1: up(mark[1]), y2: up(mark[1]) }),
    make("circle", { cx: across(mark[0]), cy: up(mark[1]), r: 5 }),
  ];
  const texts = [
    ...x.ticks.map(([at, text]) => make("text", { x: across(at), y: low + 14, class: "middle" }, text)),
    ...y.ticks.map(([at, text]) => make("text", { x: left - 5, y: up(at) + 4, class: "end" }, text)),
    make("text", { x: (left + right) / 2, y: HEIGHT - 4, class: "middle" }, x.name),
    make("text", { x: left + 6, y: TOP - 3 }, y.name),
  ];
  const frame = { class: "widget-chart", role: "img", "aria-label": label, width, height: HEIGHT };
  return make("svg", { ...frame, viewBox: `0 0 ${width} ${HEIGHT}` }, lines, texts);
}
