// A model that thinks before about half of its answers learns from rewards, in the page.

import { openModel } from "../live/client.js";
import { curve } from "./chart.js";
import { button, chooser, controls, fitted, frame, labelled, make, number, scroller, table, verdict, write } from "./parts.js";

const [STEPS, GROUPS] = [30, 8];
const ones = (items, wanted) => items.filter(wanted).length;

export async function mount(root, say) {
  const model = await openModel("running-sum", say);
  const said = verdict();
  const [graph, group] = [make("div"), make("div")];
  let [shares, last, chosen, running] = [[], null, 0, false]; // shares: the share of right answers at each step

  const draw = fitted(graph, (width) => {
    const points = shares.map((share, n) => [n + 1, share]);
    const end = STEPS * Math.max(1, Math.ceil(shares.length / STEPS));
    graph.replaceChildren(
      curve({
        label: "The share of right answers at each step",
        points,
        mark: points.at(-1) ?? [0, 0.5],
        x: { from: 0, to: end, name: "step", ticks: [0, 1, 2, 3].map((n) => [(n * end) / 3, String((n * end) / 3)]) },
        y: { from: 0, to: 1, name: "share of right answers", ticks: [0, 0.5, 1].map((value) => [value, String(value)]) },
        width,
      }),
    );
  });

  function showGroup() {
    if (!last) return group.replaceChildren();
    const { question, answers } = last[chosen];
    const right = ones(answers, ({ reward }) => reward);
    const rest = right % answers.length ? "" : ", so all the advantages are 0";
    const rows = answers.map(({ text, reward, advantage }) => {
      const cells = [reward, number(advantage)].map((value) => make("td", {}, String(value)));
      return make("tr", {}, make("td", {}, make("code", {}, text)), cells);
    });
    const caption = `Answers to ${question}: ${right} of ${answers.length} right${rest}`;
    const made = table({ class: "widget-table" }, caption, ["answer", "reward", "advantage"], rows);
    group.replaceChildren(scroller("Answers to a question", made));
  }

  function hear({ groups, seconds }) {
    last = groups;
    const all = groups.flatMap(({ answers }) => answers);
    const right = ones(all, ({ reward }) => reward);
    const thinks = ones(all, ({ text }) => !text.startsWith(">"));
    const tokens = all.reduce((sum, { text }) => sum + text.length, 0) / all.length;
    const silent = ones(groups, ({ answers }) => answers.every(({ reward }) => reward === answers[0].reward));
    shares.push(right / all.length);
    draw();
    showGroup();
    write(
      said,
      `Step ${shares.length}: ${right} of ${all.length} answers are right, ${thinks} think first, ` +
        `${number(tokens, 1)} tokens on average. In ${silent} of ${groups.length} groups, all the rewards are equal, and nothing is learned. The step took ${number(seconds, 1)} s.`,
    );
  }

  function rest(now) {
    running = !now;
    for (const other of [one, again]) other.disabled = running;
    go.textContent = running ? "Stop" : `${STEPS} steps`;
  }
  async function run(steps) {
    rest(false);
    await model.ask("reinforce", { steps, fresh: !shares.length }, hear);
    rest(true);
  }
  function clear() {
    [shares, last] = [[], null];
    draw();
    showGroup();
    write(said, "No reward yet: the model thinks before about half of its answers.");
  }
  const one = button("One step", () => run(1));
  const go = button(`${STEPS} steps`, () => (running ? model.ask("stop") : run(STEPS)));
  const again = button("Start again", clear);
  const questions = Array.from({ length: GROUPS }, (_, n) => [n, `${n + 1} of ${GROUPS}`]);
  const question = chooser(questions, 0, (value) => ((chosen = Number(value)), showGroup()));
  frame(
    root,
    "The model learns when to think",
    "take one step, and compare the rewards with the advantages. Then take 30 steps. From which groups does the model still learn at the end?",
    controls(labelled("Question", question), one, go, again),
    graph,
    group,
    said,
  );
  clear();
}
