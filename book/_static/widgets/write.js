// The trained decoder, in the page: it continues a text while you change its temperature.

import { openModel } from "../live/client.js";
import { button, chooser, labelled, make, slider } from "./parts.js";

const WRITERS = [
  ["shakespeare", "Shakespeare's plays"],
  ["stories", "little stories (0.3 MB more)"],
];
const PROMPTS = { shakespeare: "ROMEO:", stories: "Clara lives by the sea." };
const MOST = 300; // tokens

export async function mount(root, say) {
  let name = "shakespeare";
  const models = { [name]: await openModel(name, say) };
  const choice = { temperature: 0.8, topP: 1 };
  let busy = false;
  const prompt = make("input", { type: "text", value: PROMPTS[name], maxlength: 200, autocomplete: "off" });
  const text = make("output", { class: "widget-result widget-text", "aria-live": "polite", tabindex: 0 });
  const note = make("p", { class: "widget-note", role: "status" });
  const [go, stop] = [make("button", { class: "widget-button" }, "Write"), button("Stop", halt, { disabled: true })];

  function halt() {
    models[name].ask("stop");
  }
  const turn = (key) => (value) => {
    choice[key] = value;
    if (busy) models[name].ask("choose", { choice });
  };
  const between = (working) => {
    busy = working;
    for (const control of [go, learned, prompt]) control.disabled = working;
    stop.disabled = !working;
    text.setAttribute("aria-busy", working); // read aloud once it is whole
  };

  async function run(event) {
    event?.preventDefault();
    between(true);
    stop.focus({ preventScroll: true });
    text.replaceChildren(make("strong", {}, prompt.value));
    note.textContent = "Writing …";
    const told = ({ piece }) => text.append(piece);
    try {
      const asked = { prompt: prompt.value, maxNew: MOST, choice };
      const { count, stopped } = await models[name].ask("write", asked, told);
      note.textContent = `${stopped ? "Stopped after" : "Done:"} ${count} tokens.`;
    } catch (error) {
      note.textContent = error.message;
    }
    const here = document.activeElement === stop; // who has gone elsewhere stays there
    between(false);
    if (here) go.focus({ preventScroll: true });
  }

  const learned = chooser(WRITERS, name, async (chosen) => {
    between(true);
    stop.disabled = true;
    try {
      models[chosen] ??= await openModel(chosen, (told) => (note.textContent = told));
      name = chosen;
      [prompt.value, note.textContent] = [PROMPTS[name], ""];
    } catch (error) {
      [learned.value, note.textContent] = [name, error.message];
    }
    between(false);
    learned.focus();
  });
  const warm = (value) => (value ? value.toFixed(1) : "0 (always the likeliest)");
  const share = (value) => (value < 1 ? value.toFixed(2) : "1 (all)");
  root.replaceChildren(
    make(
      "form",
      { class: "widget-row", onsubmit: run },
      make("div", { class: "widget-grow" }, labelled("Beginning", prompt)),
      labelled("It has read", learned),
      go,
      stop,
    ),
    make(
      "div",
      { class: "widget-row" },
      slider({ label: "Temperature", min: 0, max: 2, step: 0.1, value: 0.8, text: warm, oninput: turn("temperature") }),
      slider({ label: "Top-p", min: 0.05, max: 1, step: 0.05, value: 1, text: share, oninput: turn("topP") }),
    ),
    text,
    note,
  );
  run(); // the first text at once; it can be stopped
}
