// Online softmax, tile by tile: what is kept of the keys that were read, and what each tile does to it.

import { softmax } from "../live/layers.js";
import { onlineSoftmax } from "../live/tiles.js";
import { button, controls, fitted, frame, make, number, picture, scroller, slider, table, verdict, write } from "./parts.js";

const SCORES = [1, 3, 2, 0.5, 2.5, -1, 4, 1.5, 0, 3.5, -0.5, 2, 5, 1, -2, 3]; // first the chapter's three
const VALUES = SCORES.map((_, s) => 10 * (s + 1));
const SIZE = SCORES.length;
const OUTLIER = 12;
const [HEIGHT, TOP, LINE] = [90, 18, 12]; // of each of the two pictures
const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
const short = (value) => number(value, Number.isInteger(value) ? 0 : 3);

export function mount(root) {
  let [scores, block, at] = [SCORES, 4, 1];
  let [drawn, steps] = [SCORES, []];
  const said = verdict();
  const [place, sums] = [make("div"), make("div")];
  const held = make("span", { class: "widget-bar-weights" });
  const memory = make("p", { class: "widget-note" });

  // Two rows of bars over the keys: their scores, and their weights as far as they are known.
  const draw = fitted(place, (width) => {
    const step = steps[at - 1];
    const whole = softmax(scores);
    const over = step.to === SIZE;
    const room = width / SIZE;
    const [low, high] = [Math.min(0, ...scores), Math.max(0, ...scores)];
    const up = (score) => TOP + ((high - score) / (high - low)) * HEIGHT;
    const base = 2 * (TOP + HEIGHT) + LINE;
    const bar = (s, kind, from, to) =>
      make("rect", {
        ...{ class: kind, x: s * room + 2, width: room - 4 },
        ...{ y: Math.min(from, to), height: Math.abs(from - to) },
      });
    const kind = (s) => (s >= step.to ? "rest" : s >= step.from ? "tile" : "read");
    const weight = (s, { m, total, to }) => (s < to ? Math.exp(scores[s] - m) / total : 0);
    const tall = Math.max(...scores.map((_, s) => Math.max(weight(s, step), whole[s])));
    const rise = (share) => base - (share / tall) * HEIGHT;
    const before = steps[at - 2];
    const mark = over ? "dots: softmax of the whole row" : "dashed: before";
    const parts = scores.flatMap((score, s) => [
      bar(s, kind(s), up(score), up(0)),
      bar(s, kind(s), rise(weight(s, step)), base),
      over || !before ? null : bar(s, "before", rise(weight(s, before)), base),
      over ? make("circle", { cx: (s + 0.5) * room, cy: rise(whole[s]), r: 3 }) : null,
    ]);
    const level = make("line", { class: "guide", x1: 0, x2: width, y1: up(step.m), y2: up(step.m) });
    const label = `${SIZE} scores and weights, of which ${step.to} keys are read`;
    place.replaceChildren(
      picture(
        ...["widget-chart widget-tiles", label, width, base + 4],
        ...parts.filter(Boolean),
        level,
        make("text", { x: 2, y: 12 }, `scores, and the maximum m = ${short(step.m)}`),
        make("text", { x: 2, y: base - HEIGHT - 6 }, `weights of the keys read; ${mark}`),
      ),
    );
  });

  function show() {
    const step = steps[at - 1];
    const over = step.to === SIZE;
    const before = steps[at - 2];
    const keys = ({ from, to }) => (to - from === 1 ? `key ${to}` : `keys ${from + 1} to ${to}`);
    const weights = softmax(scores);
    const wanted = weights.reduce((sum, weight, s) => sum + weight * VALUES[s], 0);
    const rises = !before
      ? `the first maximum is ${short(step.m)}`
      : step.m > before.m
        ? `the maximum rises from ${short(before.m)} to ${short(step.m)}, so c = ${short(step.c)} shrinks both sums`
        : `the maximum stays ${short(step.m)}, so c = 1`;
    const same = Math.abs(step.out - wanted) < 1e-9 ? "the same" : number(wanted, 3);
    const end = over ? ` All keys are read: the softmax of the whole row gives ${same}.` : "";
    const now = `Now ℓ = ${short(step.total)} and o = ${short(step.out)}.`;
    write(said, `Tile ${at} of ${steps.length}, ${keys(step)}: ${rises}. ${now}${end}`);
    const cell = (text) => make("td", {}, text);
    const row = (head, cells) => make("tr", {}, make("th", { scope: "row" }, head), cells.map(cell));
    const rows = steps.slice(0, at).map((one) => row(keys(one), [one.m, one.c, one.total, one.r, one.out].map(short)));
    if (over) rows.push(row("the whole row", ["", "", "", "", short(wanted)]));
    const head = ["read", "m", "c", "ℓ", "r", "o = r/ℓ"];
    const made = table({ class: "widget-table widget-bars" }, "Key s has the value 10 · s", head, rows);
    sums.replaceChildren(scroller("The sums after each tile", made));
    held.style.width = `${(100 * block) / SIZE}%`;
    write(held, block > 3 ? `T · ${block}` : "");
    write(
      memory,
      `With T = ${SIZE} queries: a table of T² = ${SIZE ** 2} scores, the whole bar; ` +
        `by tiles T · ${block} = ${SIZE * block} at once.`,
    );
    back.setAttribute("aria-disabled", at === 1);
    next.setAttribute("aria-disabled", over);
    draw();
  }

  function read() {
    steps = onlineSoftmax(scores, VALUES, block);
    at = 1;
    show();
  }
  const go = (to) => {
    if (to < 1 || to > steps.length) return;
    at = to;
    show();
  };
  const change = (row) => {
    scores = row;
    read();
  };
  const back = button("Back", () => go(at - 1));
  const next = button("Next tile", () => go(at + 1));
  const again = button("Other scores", () => change((drawn = SCORES.map(() => Math.round(20 * normal()) / 10))));
  const outlier = button("One outlier", () => {
    const one = Math.floor(SIZE * Math.random());
    change(drawn.map((score, s) => (s === one ? OUTLIER : score)));
  });
  read();
  frame(
    root,
    "Online softmax, tile by tile",
    "read to the end. Then give one key a score far above all others, and watch what c does to the sums before it.",
    controls(
      slider({
        label: "Keys in a tile",
        ...{ min: 1, max: SIZE, step: 1, value: block },
        oninput: (value) => ((block = value), read()),
      }),
      back,
      next,
      again,
      outlier,
    ),
    said,
    place,
    sums,
    make("div", { class: "widget-bar", "aria-hidden": "true" }, held),
    memory,
  );
}
