// The planes of a rotary head: which angles each of them has met in training, and which ones a longer text needs.

import { farthestFromSeen, scaledPlanes } from "../live/scaling.js";
import { chooser, controls, fold, frame, keeper, labelled, make, number, picture, powers, scroller, slider, table, verdict, write } from "./parts.js";

const D = 32;
const NAMES = { none: "none", linear: "linear", ntk: "NTK-aware", yarn: "YaRN", llama3: "Llama 3" };
const SIZE = 84;
const count = (value) => value.toLocaleString("en");
const degrees = (angle) => number((angle * 180) / Math.PI, 0);

// An anticlockwise arc from one angle to another, where 0 points to the right. A whole turn is a circle.
function arc(kind, radius, from, to) {
  if (to - from < 1e-3) return null;
  const middle = SIZE / 2;
  if (to - from >= 2 * Math.PI) return make("circle", { class: kind, cx: middle, cy: middle, r: radius });
  const [begin, end] = [from, to].map((angle) => `${middle + radius * Math.cos(angle)} ${middle - radius * Math.sin(angle)}`);
  return make("path", { class: kind, d: `M ${begin} A ${radius} ${radius} 0 ${Number(to - from > Math.PI)} 0 ${end}` });
}

function dial({ theta, turns, scaled, fresh }, i, { L, s }) {
  const [seen, asked] = [(L - 1) * theta, (s * L - 1) * scaled].map((angle) => Math.min(angle, 2 * Math.PI));
  const known = fresh ? Math.min(seen, asked) : asked;
  const text = (y, words, kind) => make("text", { x: SIZE / 2, y, class: `middle ${kind}` }, words);
  const label = `Plane ${i}: ${number(turns)} turns in training${fresh ? ", and new angles in the longer text" : ", and no new angles"}`;
  return picture(
    ...["widget-arcs", label, SIZE, SIZE],
    make("circle", { class: "rim", cx: SIZE / 2, cy: SIZE / 2, r: 32 }),
    [arc("seen", 28, 0, seen), arc("asked", 36, 0, known), arc("fresh", 36, known, asked)].filter(Boolean),
    text(SIZE / 2 - 2, String(i), fresh ? "fresh" : ""),
    text(SIZE / 2 + 11, fresh ? "new" : `÷ ${number(theta / scaled, 1)}`, fresh ? "fresh" : ""),
  );
}

export function mount(root) {
  const chosen = { D, base: 10_000, L: 64, s: 4, name: "none" };
  const said = verdict();
  const dials = make("div", { class: "widget-planes" });
  const cells = Array.from({ length: D / 2 }, () => [0, 1, 2].map(() => make("td")));

  function show() {
    const { L, s, name } = chosen;
    const planes = scaledPlanes(name, chosen).map((plane) => {
      const farthest = farthestFromSeen(plane, L, s * L);
      return { ...plane, farthest, fresh: farthest > plane.theta * (1 + 1e-9) }; // more than one step away from every known angle
    });
    dials.replaceChildren(...planes.map((plane, i) => dial(plane, i, chosen)));
    cells.forEach(([turns, slower, farthest], i) => {
      write(turns, planes[i].turns.toPrecision(3));
      write(slower, number(planes[i].theta / planes[i].scaled));
      write(farthest, `${degrees(planes[i].farthest)}°`);
    });
    const fresh = planes.map((_, i) => i).filter((i) => planes[i].fresh);
    const worst = planes.reduce((most, plane, i) => (plane.farthest > planes[most].farthest ? i : most), 0);
    const where = fresh.length > 1 ? `${fresh[0]} to ${fresh.at(-1)}` : fresh[0];
    const far = `${degrees(planes[worst].farthest)}°`;
    write(
      said,
      `${count(s * L)} tokens, ${name === "none" ? "no scaling" : NAMES[name]}: new angles in ` +
        (fresh.length
          ? `${fresh.length} of 16 planes, ${where}. Plane ${worst} is farthest from the angles that it met in training, by ${far}.`
          : "none of 16 planes.") +
        ` Plane 0 is slowed down by a factor of ${number(planes[0].theta / planes[0].scaled, 1)}.`,
    );
  }

  const turn = keeper(chosen, show);
  const power = (label, name, min, max) =>
    powers({ label, min, max, value: chosen[name], text: count, oninput: turn(name) });
  const base = slider({
    label: "Base",
    ...{ min: 2, max: 7, step: 0.5, value: 4 },
    text: (place) => count(Math.round(10 ** place)),
    oninput: (place) => turn("base")(10 ** place),
  });
  const rows = cells.map((line, i) => make("tr", {}, make("th", { scope: "row" }, String(i)), line));
  frame(
    root,
    "Which angles are new?",
    "choose linear scaling. How much does it slow down plane 0? Compare with NTK-aware, then with Llama 3. Then choose no scaling, but a base of 100 and L = 512.",
    controls(
      labelled("Scaling", chooser(Object.entries(NAMES), chosen.name, turn("name"))),
      power("Trained on L tokens", "L", 4, 9),
      power("Factor s for longer texts", "s", 0, 3),
      base,
    ),
    dials,
    make("p", { class: "widget-note" }, "The inner arc shows the angles met in training. The outer arc shows the angles that the longer text needs, and is dashed where they are new."),
    said,
    fold(
      "The numbers",
      false,
      scroller(
        "The planes in numbers",
        table({ class: "widget-table widget-bars" }, "", ["plane", "turns within L", "slowed down by", "farthest from a known angle"], rows),
      ),
    ),
  );
  show();
}
