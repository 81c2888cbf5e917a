// Curves as a picture; what they show is said in words beside it.

import { make, picture } from "./parts.js";

const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM, LINE] = [190, 56, 12, 14, 34, 14];

// An axis has its ends, its name and the values that are written; `draw` gets the places of a pair [x, y].
function plane({ label, x, y, width, right = RIGHT }, draw) {
  const across = (value) => LEFT + ((value - x.from) / (x.to - x.from)) * (width - LEFT - right);
  const up = (value) => HEIGHT - BOTTOM - ((value - y.from) / (y.to - y.from)) * (HEIGHT - TOP - BOTTOM);
  const [first, last, low, high] = [across(x.from), across(x.to), up(y.from), up(y.to)];
  const texts = [
    ...x.ticks.map(([at, text]) => make("text", { x: across(at), y: low + 14, class: "middle" }, text)),
    ...y.ticks.map(([at, text]) => make("text", { x: first - 5, y: up(at) + 4, class: "end" }, text)),
    make("text", { x: (first + last) / 2, y: HEIGHT - 4, class: "middle" }, x.name),
    make("text", { x: first + 6, y: TOP - 3 }, y.name),
  ];
  const axes = make("polyline", { class: "axis", points: `${first},${high} ${first},${low} ${last},${low}` });
  return picture("widget-chart", label, width, HEIGHT, axes, draw({ across, up, first, last, low }), texts);
}

const traced = (points, { across, up }, kind) =>
  make("polyline", { class: kind, points: points.map(([a, b]) => `${across(a)},${up(b)}`).join(" ") });

// A curve with a marked point; `points` and `mark` are pairs [x, y].
export const curve = ({ points, mark: [a, b], ...axes }) =>
  plane(axes, ({ first, low, ...places }) => {
    const [x, y] = [places.across(a), places.up(b)];
    return [
      traced(points, places, "curve"),
      make("line", { class: "guide", x1: x, x2: x, y1: low, y2: y }),
      make("line", { class: "guide", x1: first, x2: x, y1: y, y2: y }),
      make("circle", { cx: x, cy: y, r: 5 }),
    ];
  });

// Some curves, each with its name at its end, and a level; `lines` are [name, points].
export const curves = ({ lines, level, ...axes }) =>
  plane({ right: 76, ...axes }, ({ first, last, ...places }) => {
    const height = places.up(level);
    const ends = lines.map(([name, points], n) => ({ name, n, y: places.up(points.at(-1)[1]) })).sort((a, b) => b.y - a.y);
    let lowest = HEIGHT;
    for (const end of ends) lowest = end.y = Math.min(end.y, lowest - LINE); // names do not touch
    return [
      make("line", { class: "guide", x1: first, x2: last, y1: height, y2: height }),
      ...lines.map(([, points], n) => traced(points, places, `curve line-${n}`)),
      ...ends.map(({ name, n, y }) => make("text", { x: last + 6, y: y + 4, class: `named line-${n}` }, name)),
    ];
  });
