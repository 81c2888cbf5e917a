// Quiz questions: what is chosen is judged in the page, and counted in this browser's storage alone. A plain script,
// so that it also works on a page that was opened as a file; Sphinx adds it to pages with questions.
{
  const KEY = "transformer_lit.quiz";
  let kept = {}; // name of a question -> [tries, whether the last one was right]
  let lasting = true; // whether the browser stores anything; where it does not, `kept` lasts as long as the page

  // A damaged entry counts for nothing.
  const sound = (entry) =>
    Array.isArray(entry) && Number.isInteger(entry[0]) && entry[0] > 0 && typeof entry[1] === "boolean";

  const load = () => {
    let text;
    try {
      text = localStorage.getItem(KEY);
    } catch {
      lasting = false; // forbidden
    }
    if (!lasting) return;
    kept = {};
    try {
      for (const [name, entry] of Object.entries(JSON.parse(text) ?? {})) if (sound(entry)) kept[name] = entry;
    } catch {} // not ours: start anew
  };
  const save = () => {
    try {
      localStorage.setItem(KEY, JSON.stringify(kept));
    } catch {
      lasting = false; // forbidden, or full
    }
  };

  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const forms = []; // every question on the page: { name, part, show, clear }

  // ---- one question ----
  const question = (root) => {
    const { quiz: name, part, right } = root.dataset;
    const answer = root.querySelector(".quiz-answer");
    const choices = [...root.querySelectorAll(".quiz-choice")];
    const button = make("button", { type: "button", class: "widget-button" }, "Check");
    const done = make("span", { class: "quiz-done" });
    const verdict = make("div", { class: "quiz-verdict", role: "status" });
    answer.before(make("div", { class: "quiz-row" }, button, done), verdict);
    answer.hidden = true; // until something was tried

    const show = () => {
      const [tries, solved] = kept[name] ?? [0, false];
      const times = tries === 1 ? "1 try" : `${tries} tries`;
      done.textContent = solved ? `✓ solved in ${times}` : tries ? `${times} so far` : "";
    };
    const check = () => {
      const place = choices.findIndex((choice) => choice.querySelector("input").checked);
      verdict.className = "quiz-verdict";
      if (place < 0) return verdict.replaceChildren("Choose an answer first.");
      const good = String(place) === right;
      load(); // another tab may have counted, too
      const [tries, solved] = kept[name] ?? [0, false];
      if (!solved) kept[name] = [tries + 1, good];
      save();
      choices[place].dataset.tried = good ? "right" : "wrong";
      verdict.classList.add(good ? "right" : "wrong");
      const why = answer.querySelectorAll(".quiz-why")[place].cloneNode(true);
      verdict.replaceChildren(make("strong", {}, good ? "✓ Right." : "✗ Not this one."), " ", why);
      answer.hidden = false;
      showAll();
    };
    const clear = () => {
      for (const choice of choices) {
        choice.querySelector("input").checked = false;
        delete choice.dataset.tried;
      }
      verdict.replaceChildren();
      verdict.className = "quiz-verdict";
      answer.open = false;
      answer.hidden = true;
    };
    button.addEventListener("click", check);
    root.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target.matches("input")) check();
    });
    root.addEventListener("change", () => {
      verdict.replaceChildren(); // it was about another choice
      verdict.className = "quiz-verdict";
    });
    clear(); // a browser may fill in what was chosen before a reload
    forms.push({ name, part, show, clear });
  };

  // ---- the score ----
  const count = (part) => {
    const asked = forms.filter((form) => !part || form.part === part);
    const solved = asked.map((form) => kept[form.name] ?? [0, false]).filter(([, right]) => right);
    return { asked: asked.length, right: solved.length, first: solved.filter(([tries]) => tries === 1).length };
  };
  const showAll = () => {
    for (const form of forms) form.show();
    for (const place of document.querySelectorAll("[data-quiz-part]")) {
      const { asked, right, first } = count(place.dataset.quizPart);
      const line = place.querySelector(":scope > .quiz-sum");
      if (line) line.textContent = `${right} of ${asked} solved, ${first} at the first try.`;
      place.querySelectorAll(":scope > .quiz-cell").forEach((cell, i) => (cell.textContent = [right, first][i]));
    }
    const where = lasting
      ? "Counted in this browser alone, on this machine."
      : "This browser stores nothing for this page: the count lasts until you leave it.";
    for (const note of document.querySelectorAll(".quiz-score .quiz-note")) {
      if (note.textContent !== where) note.textContent = where; // a change is read aloud
    }
  };
  const table = (root) => {
    for (const title of ["Solved", "At the first try"]) {
      root.querySelector("thead tr").append(make("th", { scope: "col" }, title));
      for (const row of root.querySelectorAll("[data-quiz-part]")) row.append(make("td", { class: "quiz-cell" }));
    }
    const button = make("button", { type: "button", class: "widget-button" }, "Forget my answers");
    button.addEventListener("click", () => {
      if (!window.confirm("Forget all your answers on this page?")) return;
      kept = {};
      save();
      for (const form of forms) form.clear();
      showAll();
    });
    root.append(make("div", { class: "quiz-row" }, button, make("span", { class: "quiz-note", role: "status" })));
  };

  for (const root of document.querySelectorAll(".quiz-question")) question(root);
  for (const part of document.querySelectorAll(".quiz")) part.append(make("p", { class: "quiz-sum" }));
  for (const root of document.querySelectorAll(".quiz-score")) table(root);
  load();
  showAll();
  window.addEventListener("storage", (event) => {
    if (event.key !== KEY && event.key !== null) return; // null: everything was cleared
    load();
    showAll();
  });
}
