// The hypotheses that a beam search kept, as a picture that grows downwards step by step, and as a nested list.

import { make, number, picture, scroller, table } from "./parts.js";

const [HEIGHT, NARROW, WIDE, EDGE] = [46, 64, 132, 8];

const visible = (text) => text.trim() || "␣";

// Give each node of each step its children, and note whether the best hypothesis goes through it.
function grow(steps, best) {
  const nodes = steps.map((step) => step.map((node) => ({ ...node, children: [] })));
  nodes.forEach((step, t) =>
    step.forEach((node) => {
      if (t) nodes[t - 1][node.parent].children.push(node);
      const [ids, end] = node.ends ? [node.ids.slice(0, -1), true] : [node.ids, false];
      const prefix = best && ids.every((id, i) => id === best.ids[i]);
      node.won = prefix && (!end || ids.length === best.ids.length);
      node.last = t === nodes.length - 1;
    }),
  );
  return nodes;
}

const state = (node) =>
  node.state ?? (node.ends ? "finished" : node.children.length || node.last ? "open" : "dropped");

// One line for each step, with the best hypothesis on the left. The picture is as wide as `room` (in pixels) allows.
export function treePicture({ steps, best }, room) {
  const nodes = grow(steps, best);
  const columns = Math.max(...nodes.map((step) => step.length));
  const size = Math.max(NARROW, Math.min(WIDE, Math.floor(room / columns)));
  const [width, height] = [columns * size, (nodes.length + 1) * HEIGHT];
  const middle = (place) => place * size + size / 2;
  const origin = middle((Math.min(columns, 5) - 1) / 2);
  const letters = Math.floor((size - EDGE) / 6.5);
  const short = (text) => (text.length > letters ? `${text.slice(0, letters - 1)}…` : text);
  const [edges, boxes] = [[], []];
  nodes.forEach((step, t) =>
    step.forEach((node, place) => {
      const [x, y] = [middle(place), (t + 1) * HEIGHT];
      const [from, above] = [t ? middle(node.parent) : origin, y - HEIGHT + 32];
      const kind = `${state(node)}${node.won ? " won" : ""}`;
      const bend = `C${from},${above + 9} ${x},${y - 9} ${x},${y}`;
      edges.push([node.won, make("path", { class: kind, d: `M${from},${above} ${bend}` })]);
      const title = `${visible(node.text)}: log-probability ${number(node.logProb)}, ${state(node)}`;
      boxes.push(
        make(
          "g",
          { class: kind },
          make("title", {}, title),
          make("rect", { x: x - size / 2 + 2, y, width: size - 4, height: 32, rx: 4 }),
          make("text", { x, y: y + 14 }, short(visible(node.text))),
          make("text", { x, y: y + 26, class: "small" }, number(node.logProb)),
        ),
      );
    }),
  );
  edges.sort(([a], [b]) => a - b); // the best path lies on top
  const start = make("text", { x: origin, y: 26 }, "(begin)");
  const label = "The hypotheses that the beam search kept at each step; the list below contains the same in words";
  const lines = edges.map(([, edge]) => edge);
  return scroller("Beam search, step by step", picture("widget-tree", label, width, height, start, lines, boxes));
}

// The same tree in words. A hypothesis with only one continuation shares a line with it.
export function treeList({ steps, best }) {
  const item = (node) => {
    let [last, text] = [node, node.text];
    while (last.children.length === 1) {
      [last] = last.children;
      text += last.ends ? "" : last.text;
    }
    const ends = last.ends || !last.children.length;
    const say = ends ? ` (${last.won ? "best" : state(last)}, log-probability ${number(last.logProb)})` : "";
    const shown = make(last.won && node.won ? "strong" : "span", { lang: "de" }, visible(text));
    return make("li", {}, shown, say, last.children.length ? make("ul", {}, last.children.map(item)) : null);
  };
  return make("ul", { class: "widget-list" }, grow(steps, best)[0].map(item));
}

// All finished hypotheses, the best score first.
export function finishedTable(finished) {
  const order = [...finished].sort((a, b) => b.score - a.score);
  const head = ["Finished hypothesis", "log-probability", "tokens", "score"];
  const row = ({ text, logProb, ids, score }) => {
    const numbers = [number(logProb), ids.length + 1, number(score)];
    return make("tr", {}, make("td", { lang: "de" }, text), numbers.map((value) => make("td", {}, value)));
  };
  return scroller("Finished hypotheses", table({ class: "widget-table" }, null, head, order.map(row)));
}
