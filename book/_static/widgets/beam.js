// Beam search with the model that the chapter writes down as a table, one step at a time. The dropped hypotheses are shown too.

import { TableModel, searchTable } from "../live/table.js";
import { button, controls, data, fitted, fold, frame, keeper, make, number, slider, verdict, write } from "./parts.js";
import { finishedTable, treePicture } from "./tree.js";

const MOST = 6; // tokens, including the end token
const WHY = {
  bound: "The search is over: no unfinished hypothesis can beat the best finished one any more.",
  "gave up": "The search stops early: with their present scores, the unfinished hypotheses would lose to the best finished one.",
  "nothing open": "The search is over: no hypothesis is unfinished.",
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
    const parts = { open: "Unfinished", finished: "Finished", dropped: "Dropped" };
    const lists = Object.entries(parts).map(([state, name]) => [name, listed(state).join(", ")]);
    const words = lists.filter(([, list]) => list).map(([name, list]) => `${name}: ${list}.`);
    const over = at === found.steps.length;
    const end = over ? ` ${WHY[found.why]} Best: “${model.text(found.best.ids)}”, score ${number(found.best.score)}.` : "";
    write(said, `Step ${at}. ${words.join(" ")}${end}`);
    const done = found.finished.filter(({ ids }) => ids.length < at);
    finished.replaceChildren(done.length ? finishedTable(done.map(whole)) : make("p", {}, "No hypothesis is finished yet."));
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
    "Beam search, step by step",
    "set the width to 1. Which first word is kept? Then set it to 4. Which translation wins with α = 0, and which one with α = 1?",
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
    make("p", { class: "widget-note" }, "Each number is the log-probability so far. Round boxes are finished hypotheses, and dashed boxes are dropped ones."),
    fold("Finished hypotheses", true, finished),
  );
}
