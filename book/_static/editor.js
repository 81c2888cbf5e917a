// Readers write and check the builds and repairs of the first pass in the page. Python runs in a worker (python/worker.js),
// which the first press of a button starts. What a reader types is stored only in this browser.
{
  const LIMIT = 10; // seconds that a check can take
  const [DRAFTS, ANSWERS] = ["transformer_lit.drafts", "transformer_lit.answers"]; // two maps from id to text; the second one has the answers that passed
  const base = new URL("python/", document.currentScript.src);

  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const kept = (key) => {
    try {
      return { ...JSON.parse(localStorage.getItem(key)) };
    } catch {
      return {}; // storage is forbidden, or the entry isn't ours
    }
  };
  const keep = (key, id, text) => {
    try {
      localStorage.setItem(key, JSON.stringify({ ...kept(key), [id]: text }));
    } catch {} // storage is forbidden or full
  };

  // ---- Python: one worker for all cards of the page ----
  let worker;
  let asked = 0;
  const waiting = new Map(); // n -> {hear, end}; `hear` is called when Python has started, and then with the number of steps done
  const stop = (said) => {
    worker?.terminate();
    worker = undefined;
    for (const { end } of waiting.values()) end(said);
    waiting.clear();
  };
  // {verdict}, {trained} or {error}
  const ask = (what, hear) =>
    new Promise((end) => {
      if (!worker) {
        worker = new Worker(new URL("worker.js", base), { type: "module" });
        worker.addEventListener("error", () => stop({ error: "Python couldn’t be loaded. Try again." }));
        worker.addEventListener("message", ({ data: { n, ...said } }) => {
          if (said.error) return stop({ error: `Python stopped: ${said.error}. Try again.` });
          if (said.started || said.done) return waiting.get(n)?.hear(said.done);
          waiting.get(n)?.end(said);
          waiting.delete(n);
        });
      }
      waiting.set((asked += 1), { hear, end });
      worker.postMessage({ n: asked, ...what });
    });

  // ---- my_transformer.py: the last version of each part that passed, in the order of the file ----
  const own = async (id, text) => {
    const { head, steps, ladder, training } = await (await fetch(new URL("about.json", base))).json();
    const texts = { ...kept(ANSWERS), [id]: text };
    const parts = new Map([["", head]]);
    for (const [exercise, name] of steps) if (texts[exercise]) parts.set(name, texts[exercise]); // a later version takes the place of an earlier one
    const file = [...parts.values()].map((part) => part.trim()).join("\n\n\n") + "\n";
    const step = steps.find(([exercise]) => exercise === id)[2];
    return { file, step, training, expected: ladder[step] };
  };
  const download = async (id, text) => {
    const { file } = await own(id, text);
    const href = URL.createObjectURL(new Blob([file], { type: "text/x-python" }));
    make("a", { href, download: "my_transformer.py" }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
  };

  // ---- typing: a new line is indented like the one above, Tab indents, and after Escape it leaves the editor ----
  const typing = (area) => {
    let leaves = false;
    const put = (from, to, text) => {
      area.setSelectionRange(from, to);
      document.execCommand("insertText", false, text); // so that the reader can undo it
    };
    area.addEventListener("blur", () => (leaves = false));
    area.addEventListener("keydown", (event) => {
      const { key, shiftKey, ctrlKey, metaKey, altKey, isComposing } = event;
      if (key === "Escape") leaves = true;
      if (ctrlKey || metaKey || altKey || isComposing) return;
      const { value, selectionStart: from, selectionEnd: to } = area;
      const begin = value.lastIndexOf("\n", from - 1) + 1;
      if (key === "Enter") {
        const line = value.slice(begin, from);
        put(from, to, `\n${line.match(/^ */)[0]}${line.trimEnd().endsWith(":") ? "    " : ""}`);
      } else if (key === "Tab" && !leaves && from === to && !shiftKey) {
        put(from, to, " ".repeat(4 - ((from - begin) % 4)));
      } else if (key === "Tab" && !leaves) {
        const lines = value.slice(begin, to);
        const moved = shiftKey ? lines.replace(/^ {1,4}/gm, "") : lines.replace(/^(?=.)/gm, "    ");
        if (moved !== lines) put(begin, to, moved);
        if (from !== to) area.setSelectionRange(begin, begin + moved.length);
      } else return;
      event.preventDefault();
    });
  };

  // ---- a card ----
  const notebook = () => {
    const { href } = document.querySelector(".chapter-card a[href$='.ipynb']");
    return [" ", make("a", { href }, "Download it"), "."];
  };
  const shown = ({ id, state, line, notes }) => {
    const below = notes.length ? [make("ul", {}, ...notes.map((note) => make("li", {}, note)))] : [];
    const head = make("strong", {}, `${id}: ${state}.`);
    return make("div", { class: `verdict ${state.replace(" ", "-")}` }, head, ` ${line}`, ...(state === "not here" ? notebook() : []), ...below);
  };

  // What a model of the page's size has learned; `expected`: the nats per letter that the book's file reaches, for each seed.
  const learned = (step, expected, { line, missing, said, untrained, nats, unit, before, after, sample }) => {
    if (line) return [make("p", {}, line, ...(missing ? notebook() : []))];
    const short = (number) => number.toFixed(2);
    const more = unit === "nats a letter" ? "" : ` ${unit[0].toUpperCase()}${unit.slice(1)}: ${before.toFixed(0)} → ${after.toFixed(0)}.`;
    const book = `With the book’s file, a model of this size reaches ${short(Math.min(...expected))} to ${short(Math.max(...expected))}. The model of “check --write” is much larger.`;
    return [
      ...said.map((one) => make("p", {}, one)),
      make("p", {}, make("strong", {}, `Step ${step}: ${short(untrained)} untrained → ${short(nats)} nats per letter on new stories.`), `${more} ${book}`),
      make("pre", { "aria-label": "Text generated by the model" }, sample.trim()),
    ];
  };

  const mount = (card) => {
    const id = card.dataset.exercise;
    const name = id.replace(/\W/g, "-");
    const cell = card.querySelector(":scope > .cell"); // the blank, which is shown in print and without JavaScript
    const [hint, solution] = ["hint", "solution"].map((what) => card.querySelector(`:scope > details.${what}`));
    const blank = cell.querySelector("pre").textContent.replace(/^check\(.*\)\s*$(?![^])/m, "").trimEnd();
    const area = make("textarea", { wrap: "off", spellcheck: "false", autocapitalize: "off", autocomplete: "off" });
    const numbers = make("div", { "aria-hidden": "true" });
    const verdict = make("div", { role: "status" });
    const done = make("span", {}, "✓ done");
    done.hidden = !(id in kept(ANSWERS));
    const help = "Tab indents. To leave the editor, press Esc and then Tab. Ctrl+Enter runs the check.";
    area.setAttribute("aria-label", `Your answer to ${id}`);
    area.setAttribute("aria-describedby", `keys-${name}`);

    const lay = () => {
      const count = area.value.split("\n").length;
      area.rows = count + 1; // and one line for the scroll bar
      numbers.textContent = Array.from({ length: count }, (_, i) => i + 1).join("\n");
    };
    const write = (text) => {
      area.value = text;
      lay();
    };

    let running = false;
    const python = async (pressed, busy, what, hear) => {
      if (location.protocol === "file:") return { error: "Browsers don’t let a page run Python if it was opened as a file. Run “make serve” and open the address that it prints." };
      running = true;
      buttons.stop.hidden = false;
      for (const button of [buttons.run, buttons.train]) button?.setAttribute("aria-disabled", "true");
      verdict.textContent = worker ? busy : "Loading Python (7 MB, once) …";
      const found = await ask(what, hear);
      running = false;
      for (const button of [buttons.run, buttons.train]) button?.removeAttribute("aria-disabled");
      if (document.activeElement === buttons.stop) pressed.focus();
      buttons.stop.hidden = true;
      return found;
    };
    const run = async () => {
      if (running) return;
      const text = area.value;
      let clock;
      const { verdict: said, error } = await python(buttons.run, "Checking …", { id, text }, () => {
        verdict.textContent = "Checking …";
        const line = `It did not end within ${LIMIT} seconds, so it was stopped. Is there a loop that never ends?`;
        clock = setTimeout(() => stop({ verdict: { id, state: "not yet", line, notes: [] } }), LIMIT * 1000);
      });
      clearTimeout(clock);
      if (said?.state === "passed") {
        keep(ANSWERS, id, text);
        done.hidden = false;
      }
      verdict.replaceChildren(said ? shown(said) : error);
    };
    const train = async () => {
      if (running) return;
      const { file, step, training, expected } = await own(id, area.value);
      const { trained, error } = await python(buttons.train, "Training …", { step, text: file }, (steps = 0) => {
        if (steps % 20 === 0) verdict.textContent = `Training: ${steps} of ${training} steps …`;
      });
      verdict.replaceChildren(...(trained ? learned(step, expected, trained) : [error]));
    };

    const folded = (fold, what) => {
      fold.id ||= `${what}-${name}`;
      const button = make("button", { "aria-controls": fold.id }, what[0].toUpperCase() + what.slice(1));
      const tell = () => button.setAttribute("aria-expanded", String(fold.open));
      button.addEventListener("click", () => (fold.open = !fold.open));
      fold.addEventListener("toggle", tell);
      tell();
      return button;
    };
    const pressed = (said, act) => {
      const button = make("button", {}, said);
      button.addEventListener("click", act);
      return button;
    };
    const buttons = {
      run: pressed("Run and check", run),
      stop: pressed("Stop", () => stop({ error: "Stopped." })),
      hint: folded(hint, "hint"),
      solution: folded(solution, "solution"),
      again: pressed("Start again", () => {
        area.focus();
        area.select();
        document.execCommand("insertText", false, blank); // so that the reader can undo it
      }),
    };
    if ("step" in card.dataset) {
      buttons.train = pressed("Train it here", train);
      buttons.file = pressed("Download my_transformer.py", () => download(id, area.value));
    }
    buttons.stop.hidden = true;
    for (const button of Object.values(buttons)) Object.assign(button, { type: "button", className: "widget-button" });

    area.addEventListener("input", () => {
      lay();
      keep(DRAFTS, id, area.value);
    });
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
    });
    typing(area);
    write(kept(DRAFTS)[id] ?? (kept(ANSWERS)[id] || blank)); // the answer is "" if only a progress file reports that it passed
    const editor = make(
      "div",
      { class: "editor" },
      make("div", { class: "editor-code" }, numbers, area),
      make("p", { class: "quiz-note", id: `keys-${name}` }, help),
      make("div", { class: "widget-row" }, ...Object.values(buttons), done),
      verdict,
    );
    cell.before(editor);
    editor.after(hint);
    card.classList.add("written-here");
  };

  document.addEventListener("DOMContentLoaded", () => {
    for (const card of document.querySelectorAll(".exercise-card[data-exercise]")) mount(card);
  });
}
