// A curve as a picture. The text next to it says in words what it shows.

import { make, picture } from "./parts.js";

const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [190, 56, 12, 14, 34];

// An axis has two ends, a name and labelled values. The `points` and the marked point are pairs [x, y].
export function curve({ label, points, mark, x, y, width }) {
  const across = (value) => LEFT + ((value - x.from) / (x.to - x.from)) * (width - LEFT - RIGHT);
  const up = (value) => HEIGHT - BOTTOM - ((value - y.from) / (y.to - y.from)) * (HEIGHT - TOP - BOTTOM);
  const [first, last, low, high] = [across(x.from), across(x.to), up(y.from), up(y.to)];
  const [markX, markY] = [across(mark[0]), up(mark[1])];
  const texts = [
    ...x.ticks.map(([at, text]) => make("text", { x: across(at), y: low + 14, class: "middle" }, text)),
    ...y.ticks.map(([at, text]) => make("text", { x: first - 5, y: up(at) + 4, class: "end" }, text)),
    make("text", { x: (first + last) / 2, y: HEIGHT - 4, class: "middle" }, x.name),
    make("text", { x: first + 6, y: TOP - 3 }, y.name),
  ];
  const shapes = [
    make("polyline", { class: "axis", points: `${first},${high} ${first},${low} ${last},${low}` }),
    make("polyline", { class: "curve", points: points.map(([a, b]) => `${across(a)},${up(b)}`).join(" ") }),
    make("line", { class: "guide", x1: markX, x2: markX, y1: low, y2: markY }),
    make("line", { class: "guide", x1: first, x2: markX, y1: markY, y2: markY }),
    make("circle", { cx: markX, cy: markY, r: 5 }),
  ];
  return picture("widget-chart", label, width, HEIGHT, shapes, texts);
}
