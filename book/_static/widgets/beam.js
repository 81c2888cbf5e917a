// Beam search of the chapter's written-down model, a step at a time, with what it leaves behind.

import { TableModel, searchTable } from "../live/table.js";
import { button, controls, data, fitted, fold, frame, keeper, make, number, slider, verdict, write } from "./parts.js";
import { finishedTable, treePicture } from "./tree.js";

const MOST = 6; // tokens, the end among them
const WHY = {
  bound: "The search is over: no open beginning can beat what is finished.",
  "gave up": "The search gives up: as they stand, the open beginnings would not beat what is finished.",
  "nothing open": "The search is over: nothing is open.",
};

export async function mount(root) {
  const model = new TableModel(await data("data/table.json"));
  const choice = { beam: 2, alpha: 1, maxLen: MOST };
  let [found, at] = [null, 1];
  const said = verdict();
  const [tree, finished] = [make("div"), make("div")];
  const whole = (hypothesis) => ({ ...hypothesis, text: model.text(hypothesis.ids) });

  const draw = fitted(tree, (width) => {
    const over = at === found.steps.length;
    tree.replaceChildren(treePicture({ steps: found.steps.slice(0, at), best: over ? found.best : null }, width));
  });

  function show() {
    const step = found.steps[at - 1];
    const listed = (state) => {
      const chosen = step.filter((node) => node.state === state);
      return chosen.map(({ ids, ends, logProb }) => `${model.text(ends ? ids.slice(0, -1) : ids)} (${number(logProb)})`);
    };
    const parts = { open: "Open", finished: "Finished", dropped: "Dropped" };
    const lists = Object.entries(parts).map(([state, name]) => [name, listed(state).join(", ")]);
    const words = lists.filter(([, list]) => list).map(([name, list]) => `${name}: ${list}.`);
    const over = at === found.steps.length;
    const end = over ? ` ${WHY[found.why]} Best: “${model.text(found.best.ids)}”, score ${number(found.best.score)}.` : "";
    write(said, `Step ${at}. ${words.join(" ")}${end}`);
    const done = found.finished.filter(({ ids }) => ids.length < at);
    finished.replaceChildren(done.length ? finishedTable(done.map(whole)) : make("p", {}, "Nothing has finished yet."));
    back.setAttribute("aria-disabled", at === 1);
    next.setAttribute("aria-disabled", over);
    draw();
  }

  function search() {
    found = searchTable(model, choice);
    at = Math.min(at, found.steps.length);
    show();
  }
  const go = (place) => {
    if (place < 1 || place > found.steps.length || place === at) return;
    at = place;
    show();
  };
  const turn = keeper(choice, search);
  const back = button("Back", () => go(at - 1));
  const next = button("Next step", () => go(at + 1));
  const last = button("To the end", () => go(found.steps.length));
  search();
  frame(
    root,
    "The search, step by step",
    "which first word does a width of 1 take? Which translation does α = 0 choose at width 4, and which α = 1?",
    controls(
      slider({ label: "Width w", min: 1, max: 4, step: 1, value: choice.beam, oninput: turn("beam") }),
      slider({
        label: "Length penalty α",
        ...{ min: 0, max: 2, step: 0.1, value: choice.alpha },
        text: (value) => value.toFixed(1),
        oninput: turn("alpha"),
      }),
    ),
    controls(back, next, last),
    said,
    tree,
    make("p", { class: "widget-note" }, "A number is the log-probability so far. Round boxes are finished, dashed ones dropped."),
    fold("What has finished", true, finished),
  );
}
