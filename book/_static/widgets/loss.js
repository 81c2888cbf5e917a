// Probabilities that the reader can drag, with the loss and the direction in which its gradient pushes each logit.

import { logitFor, tokenLoss } from "../live/loss.js";
import { button, chooser, controls, frame, labelled, make, number, slider, table, verdict, write } from "./parts.js";

const WORDS = ["bike", "horse", "wave", "bus", "cloud"]; // A man is riding a …
const LEAST = 0.001;

export function mount(root) {
  let logits = [1.5, 1, 0, -0.5, -2];
  const chosen = { right: 0, smoothing: 0, temperature: 1 };
  const measured = () => tokenLoss(logits, chosen.right, chosen.smoothing, chosen.temperature);
  const said = verdict();

  const rows = WORDS.map((word, v) => {
    const bar = make("input", {
      ...{ type: "range", min: 0, max: 1, step: 0.005, "aria-label": `Probability of “${word}”` },
      oninput: ({ target }) => {
        const p = Math.min(1 - LEAST, Math.max(LEAST, Number(target.value)));
        logits[v] = logitFor(logits, v, p, chosen.temperature);
        show();
      },
    });
    const place = make("div", { class: "widget-drag" }, bar, make("span")); // the target
    const [name, logit, p, gradient] = [make("th", { scope: "row" }), make("td"), make("td"), make("td")];
    return { bar, place, name, logit, p, gradient, row: make("tr", {}, name, logit, make("td", {}, place), p, gradient) };
  });

  function show() {
    const { p, q, plain, loss, floor, gradient } = measured();
    rows.forEach(({ bar, place, ...cells }, v) => {
      bar.value = p[v];
      bar.setAttribute("aria-valuetext", `${number(p[v], 3)}, logit ${number(logits[v])}`);
      place.style.setProperty("--p", p[v]);
      place.style.setProperty("--q", q[v]);
      write(cells.name, v === chosen.right ? `✓ ${WORDS[v]}` : WORDS[v]);
      write(cells.logit, number(logits[v]));
      write(cells.p, number(p[v], 3));
      write(cells.gradient, (gradient[v] > 0 ? "+" : "") + number(gradient[v]));
    });
    const smoothed = `With ε = ${number(chosen.smoothing)} the loss is ${number(loss)} nats, and can’t fall below ${number(floor)}. `;
    const [up, down] = [Math.min, Math.max].map((most) => gradient.indexOf(most(...gradient)));
    const pushed = (v) => `“${WORDS[v]}” by ${number(Math.abs(gradient[v]))}`;
    const pushes = `A step raises the logit of ${pushed(up)} and lowers that of ${pushed(down)}.`;
    write(
      said,
      `“${WORDS[chosen.right]}” is right and has the probability ${number(p[chosen.right], 3)}. The loss is ${number(plain)} nats, ` +
        `or ${number(plain / Math.LN2)} bits, and the perplexity is ${number(Math.exp(plain))}. ${chosen.smoothing ? smoothed : ""}` +
        (gradient[down] < 0.005 ? "No logit is pushed any more." : pushes),
    );
  }

  const turn = (name) => (value) => {
    chosen[name] = Number(value);
    show();
  };
  const step = button("One step against the gradient", () => {
    const { gradient } = measured();
    logits = logits.map((logit, v) => logit - gradient[v]);
    show();
  });
  const right = chooser(WORDS.map((word, v) => [v, word]), chosen.right, turn("right"));
  const smoothing = { label: "Smoothing ε", min: 0, max: 0.9, step: 0.05, value: 0, text: (value) => number(value) };
  const temperature = { label: "Temperature", min: -2, max: 2, step: 0.5, value: 0, text: (power) => number(2 ** power) };
  show();
  frame(
    root,
    "Drag the probabilities, watch the loss",
    "give the right token a probability of 1/8, which costs three bits. Then make another token the right one, and take some steps. With ε = 0.10, where do the probabilities end?",
    controls(
      labelled("A man is riding a …", right),
      slider({ ...smoothing, oninput: turn("smoothing") }),
      slider({ ...temperature, oninput: (power) => turn("temperature")(2 ** power) }),
    ),
    table(
      { class: "widget-table widget-drags" },
      "Each bar ends at the probability p, and the line marks the target q. A step moves the logits against the gradient.",
      ["token", "logit", "probability", "p", "gradient"],
      rows.map(({ row }) => row),
    ),
    step,
    said,
  );
}
