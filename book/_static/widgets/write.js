// The trained decoder in the page. It continues a text while the reader changes the temperature, and each token can be
// opened.

import { openModel } from "../live/client.js";
import { lensTable, named } from "./lens.js";
import { button, chooser, controls, frame, labelled, make, number, slider, verdict, write } from "./parts.js";

const WRITERS = [
  ["shakespeare", "Shakespeare's plays"],
  ["stories", "little stories (0.3 MB more)"],
];
const PROMPTS = { shakespeare: "ROMEO:", stories: "Clara lives by the sea." };
const MOST = 300; // tokens
const STEPS = { ArrowLeft: -1, ArrowRight: 1 };

export async function mount(root, say) {
  let name = "shakespeare";
  const models = { [name]: await openModel(name, say) };
  const choice = { temperature: 0.8, topP: 1 };
  let [busy, running] = [false, null];
  let [pieces, at] = [[], -1]; // the tokens of the text, and the index of the open one
  const prompt = make("input", { type: "text", value: PROMPTS[name], maxlength: 200, autocomplete: "off" });
  const text = make("output", {
    ...{ class: "widget-result widget-text widget-tokens", "aria-live": "polite", tabindex: 0 },
    ...{ onclick: ({ target }) => look(pieces.indexOf(target)), onkeydown: walk },
  });
  const note = make("p", { class: "widget-note", role: "status" });
  const [go, stop] = [make("button", { class: "widget-button" }, "Write"), button("Stop", halt, { disabled: true })];
  const said = verdict();
  const heights = make("div");
  const [earlier, later] = [button("Earlier token", () => look(at - 1)), button("Later token", () => look(at + 1))];
  const inside = make("div", { hidden: true }, controls(earlier, later), said, heights);

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
    text.setAttribute("aria-busy", working); // screen readers read it once it is complete
  };

  function walk(event) {
    if (!STEPS[event.key]) return;
    event.preventDefault();
    look(at + STEPS[event.key]);
  }

  // Open a token: show the distribution that it was drawn from, and what each depth would have predicted.
  async function look(place) {
    if (!pieces[place]) return;
    pieces[at]?.classList.remove("chosen");
    pieces[(at = place)].classList.add("chosen");
    const found = await models[name].ask("look", { at });
    if (at !== place) return; // another token was opened meanwhile
    const { piece, rank, since, size, seen, token, top, lens } = found;
    const chance = top.find(({ id }) => id === token).chances.at(-1);
    write(
      said,
      `Token ${at + 1}, ${named(piece)}: the model gave it ${number(100 * chance, 1)} %, number ${rank} of ${size}. ` +
        `The entropy is ${number(lens.at(-1).bits)} bits. The first choice was ${named(top[0].piece)}, ` +
        `from ${since ? `block ${since}` : "the embedding"} on. The model saw the last ${seen} tokens.`,
    );
    const within = heights.contains(document.activeElement);
    heights.replaceChildren(lensTable(found, (other) => begin({ at, token: other })));
    if (within) heights.querySelector("[aria-pressed=true]").focus({ preventScroll: true });
    inside.hidden = false;
    ends();
  }
  function ends() {
    earlier.setAttribute("aria-disabled", at <= 0);
    later.setAttribute("aria-disabled", at === pieces.length - 1);
  }

  function hear({ piece, bits }, first) {
    const style = `--weight: ${(bits / Math.log2(models[name].config.vocab_size)).toFixed(3)}`;
    const made = make("span", { class: piece.endsWith("\n") && "end", style }, piece);
    pieces.push(made);
    text.append(made);
    if (pieces.length === first + 1) look(first);
  }

  // Write from the prompt, or from another token at a position of the text.
  async function run(from) {
    between(true);
    if (!from) {
      stop.focus({ preventScroll: true });
      text.replaceChildren(make("strong", {}, prompt.value));
    }
    const first = from?.at ?? 0;
    for (const gone of pieces.splice(first)) gone.remove();
    at = -1;
    note.textContent = "Writing …";
    try {
      const asked = { prompt: prompt.value, from, maxNew: MOST, choice };
      const { count, stopped } = await models[name].ask("write", asked, (told) => hear(told, first));
      note.textContent = `${stopped ? "Stopped after" : "Done:"} ${count} ${count === 1 ? "token" : "tokens"}.`;
    } catch (error) {
      note.textContent = error.message;
    }
    const here = document.activeElement === stop; // don't move the focus if it is elsewhere
    between(false);
    inside.hidden = !pieces.length;
    ends();
    if (here) go.focus({ preventScroll: true });
  }
  async function begin(from) {
    if (busy) halt();
    await running;
    if (busy) return; // another call was faster
    running = run(from);
  }

  const learned = chooser(WRITERS, name, async (chosen) => {
    between(true);
    stop.disabled = true;
    try {
      models[chosen] ??= await openModel(chosen, (told) => (note.textContent = told));
      name = chosen;
      [prompt.value, note.textContent, pieces, inside.hidden] = [PROMPTS[name], "", [], true];
      text.replaceChildren();
    } catch (error) {
      [learned.value, note.textContent] = [name, error.message];
    }
    between(false);
    learned.focus();
  });
  const warm = (value) => (value ? value.toFixed(1) : "0 (always the most probable)");
  const share = (value) => (value < 1 ? value.toFixed(2) : "1 (all)");
  const submit = (event) => {
    event.preventDefault();
    begin();
  };
  frame(
    root,
    "The writer, token by token",
    "press a shaded token, where the model was unsure. What else did it consider? After which block was its choice made? " +
      "Press another candidate, and the text continues from there.",
    make(
      "form",
      { class: "widget-row", onsubmit: submit },
      make("div", { class: "widget-grow" }, labelled("Prompt", prompt)),
      labelled("Trained on", learned),
      go,
      stop,
    ),
    controls(
      slider({ label: "Temperature", min: 0, max: 2, step: 0.1, value: 0.8, text: warm, oninput: turn("temperature") }),
      slider({ label: "Top-p", min: 0.05, max: 1, step: 0.05, value: 1, text: share, oninput: turn("topP") }),
    ),
    text,
    note,
    inside,
  );
  begin(); // write the first text at once; the reader can stop it
}
