// Exercises whose answer is a value: read and judged in the page as `check` does it in Python, and remembered in this
// browser's storage alone. A plain script, so that it also works on a page that was opened as a file.
{
  // ---- reading: a value is [kind, content]; kinds are int, float, bool, str, list, and open for what is not filled in
  const UNREAD = 'This cannot be read. Write a value as in Python: 0.5, 1/3, [1, 2], "word" or True.';
  const NUMBER = String.raw`(?:\d+(?:_\d+)*\.?(?:\d+(?:_\d+)*)?|\.\d+(?:_\d+)*)(?:[eE][+-]?\d+)?(?![\p{L}\p{N}_.])`;
  const STRING = String.raw`"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'`;
  const WORD = String.raw`[\p{L}_][\p{L}\p{N}_.]*(?: +[\p{L}_][\p{L}\p{N}_.]*)*`; // quotes may be left out
  const PIECE = new RegExp(`\\s*(?:(${NUMBER})|(${STRING})|(${WORD})|(\\.\\.\\.|\\*\\*|[-+*/()[\\],]))`, "uy");
  const NAMES = new Map([["True", ["bool", true]], ["False", ["bool", false]], ["None", ["open"]]]);
  NAMES.set("nan", ["float", NaN]).set("inf", ["float", Infinity]);
  const FUNCTIONS = new Map(["sqrt", "log", "log2", "exp"].map((name) => [name, Math[name]]));
  const ESCAPES = { n: "\n", t: "\t", "\\": "\\", "'": "'", '"': '"' };

  const isNumber = ([kind]) => kind === "int" || kind === "float";
  const fail = () => {
    throw new SyntaxError(UNREAD);
  };
  const calculate = (kind, numbers, act) => {
    if (!numbers.every(isNumber)) fail();
    const found = act(...numbers.map(([, x]) => x));
    return Number.isFinite(found) ? [kind, found] : fail();
  };
  const operate = (sign, a, b) => {
    const whole = a[0] === "int" && b[0] === "int" && sign !== "/" && !(sign === "**" && b[1] < 0);
    const act = (x, y) => ({ "+": x + y, "-": x - y, "*": x * y, "/": x / y, "**": x ** y })[sign];
    return calculate(whole ? "int" : "float", [a, b], act);
  };

  const read = (text) => {
    text = text.trim().replaceAll("−", "-");
    const pieces = [];
    for (PIECE.lastIndex = 0; PIECE.lastIndex < text.length; ) pieces.push(PIECE.exec(text) ?? fail());
    let place = 0;
    const at = (...signs) => signs.includes(pieces[place]?.[4]);
    const take = () => pieces[place++][4];
    const expect = (sign) => (at(sign) ? take() : fail());
    const several = (end) => {
      const found = [];
      let comma = false;
      while (end ? !at(end) : place < pieces.length) {
        found.push(sum());
        if (!at(",")) break;
        comma = !!take();
      }
      if (end) expect(end);
      return [found, comma];
    };
    const atom = () => {
      const [, number, string, word, sign] = pieces[place++] ?? fail();
      if (number) {
        if (/^0[\d_]*[1-9][\d_]*$/.test(number)) fail(); // as Python: 007 is no number
        const kind = /[.eE]/.test(number) ? "float" : "int";
        const found = [kind, Number(number.replaceAll("_", ""))];
        return kind === "float" || Number.isFinite(found[1]) ? found : fail();
      }
      if (string) return ["str", string.slice(1, -1).replace(/\\(.)/gu, (_, it) => ESCAPES[it] ?? fail())];
      if (word && at("(")) {
        const act = FUNCTIONS.get(word.replace(/^math\./, "")) ?? fail();
        take();
        const [[x, ...more]] = several(")");
        return !x || more.length ? fail() : calculate("float", [x], act);
      }
      if (word) return NAMES.get(word) ?? ["str", word];
      if (sign === "...") return ["open"];
      if (sign === "[") return ["list", several("]")[0]];
      if (sign !== "(") fail();
      const [found, comma] = several(")");
      return found.length === 1 && !comma ? found[0] : ["list", found];
    };
    const power = () => {
      const base = atom();
      return at("**") ? operate(take(), base, signed()) : base;
    };
    const signed = () => {
      if (!at("-", "+")) return power();
      const minus = take() === "-";
      const found = signed();
      if (!isNumber(found)) fail();
      return [found[0], !minus ? found[1] : found[0] === "int" ? 0 - found[1] : -found[1]];
    };
    const product = () => {
      let left = signed();
      while (at("*", "/")) left = operate(take(), left, signed());
      return left;
    };
    const sum = () => {
      let left = product();
      while (at("+", "-")) left = operate(take(), left, product());
      return left;
    };
    const [found, comma] = several();
    if (place < pieces.length || !(found.length || comma)) fail();
    return found.length === 1 && !comma ? found[0] : ["list", found];
  };

  // ---- comparing: transformer_lit.course.exercises, function by function, for values ----
  const KINDS = { bool: "True or False", int: "a whole number", float: "a number", str: "a word" };
  const kindOf = ([kind, x]) => (kind === "list" ? `a list of ${x.length}` : KINDS[kind]);
  const bothLists = (a, b) => a[0] === "list" && b[0] === "list";
  const isOpen = ([kind, x]) => kind === "open" || (kind === "list" ? x.some(isOpen) : x === "" || x === "...");

  const general = ([, x]) => {
    // as Python's format .6g
    if (!Number.isFinite(x)) return Number.isNaN(x) ? "nan" : x > 0 ? "inf" : "-inf";
    if (Object.is(x, -0)) return "-0";
    const [digits, power] = x.toExponential(5).split("e");
    if (power >= -4 && power < 6) return String(Number(x.toPrecision(6)));
    return `${Number(digits)}e${power[0]}${power.slice(1).padStart(2, "0")}`;
  };
  const represent = ([kind, x]) => {
    if (kind === "bool") return x ? "True" : "False";
    const quote = x.includes("'") && !x.includes('"') ? '"' : "'";
    const hexed = (it) => {
      const code = it.codePointAt(0);
      const [letter, digits] = code < 256 ? ["x", 2] : code < 65536 ? ["u", 4] : ["U", 8];
      return { "\n": "\\n", "\t": "\\t", "\r": "\\r" }[it] ?? `\\${letter}${code.toString(16).padStart(digits, "0")}`;
    };
    const inside = x.replaceAll("\\", "\\\\").replaceAll(quote, `\\${quote}`);
    return quote + inside.replace(/(?! )[\p{C}\p{Z}]/gu, hexed) + quote;
  };
  const folded = (text) => text.trim().toUpperCase().toLowerCase();

  const difference = (a, b, tolerance, kind) => {
    if (isNumber(a) && isNumber(b)) {
      const [x, y] = [a[1], b[1]];
      const room = (a[0] === "int" ? 0 : tolerance) + 1e-12;
      const same = (Math.abs(x - y) <= room && Number.isFinite(x)) || x === y || (Number.isNaN(x) && Number.isNaN(y));
      return same ? null : `${general(b)} is not it`;
    }
    if (bothLists(a, b)) {
      const n = a[1].length;
      if (n !== b[1].length) return `${kindOf(b)} is not it`;
      const right = a[1].filter((x, i) => !difference(x, b[1][i], tolerance)).length;
      return right === n ? null : `${right} of ${n} entries are right`;
    }
    if (a[0] !== b[0]) return `expected ${kind}, got ${kindOf(b)}`;
    const same = a[1] === b[1] || (a[0] === "str" && folded(a[1]) === folded(b[1]));
    return same ? null : `${represent(b)} is not it`;
  };
  const roundsTo = (a, b, digits) => {
    if (bothLists(a, b)) return a[1].length === b[1].length && a[1].every((x, i) => roundsTo(x, b[1][i], digits));
    const [x, y] = [a[1], b[1]];
    if (a[0] !== "float" || !isNumber(b) || !Number.isFinite(x) || !Number.isFinite(y) || x === 0) return !difference(a, b, 0);
    const unit = Number(`1e${x.toExponential().split("e")[1] - digits + 1}`);
    return Math.abs(y / unit - Math.round(y / unit)) < 1e-6 && Math.abs(x - y) <= unit * (0.5 + 1e-9);
  };
  const knownValue = (known, b, tolerance) => {
    const values = known.map(([line, value]) => [line, read(value)]);
    const exact = values.find(([, a]) => !difference(a, b, tolerance));
    return (exact ?? values.find(([, a]) => [2, 3, 4, 5, 6].some((digits) => roundsTo(a, b, digits))))?.[0];
  };
  const kindsDiffer = (a, b) => {
    if (bothLists(a, b)) return a[1].map((x, i) => i < b[1].length && kindsDiffer(x, b[1][i])).find(Boolean);
    if (a[0] === "bool" && (b[0] === "str" || isNumber(b)))
      return "Write True and False themselves, without quotes, and not 1 and 0.";
    if (isNumber(a) && b[0] === "str") return `Write numbers without quotes: ${represent(b)} is a word.`;
  };
  const isReordered = (a, b, tolerance) => {
    if (!bothLists(a, b) || a[1].length !== b[1].length || a[1].length < 2) return false;
    const left = [...b[1]];
    return a[1].every((x) => {
      const place = left.findIndex((y) => !difference(x, y, tolerance));
      return place >= 0 && left.splice(place, 1);
    });
  };

  // the state and the line of `check`; "unread" is what Python would not run
  const judge = ({ key, kind, tolerance, form, sought, known }, text) => {
    const open = { state: "open", line: `Fill the blank: ${form}.` };
    if (!text.trim()) return open;
    let b;
    try {
      b = read(text);
    } catch {
      return { state: "unread", line: UNREAD };
    }
    const a = read(key);
    if (isOpen(b)) return open;
    const differs = difference(a, b, tolerance, kind);
    if (!differs) return { state: "passed", line: "That is right." };
    const line =
      knownValue(known, b, tolerance) ||
      kindsDiffer(a, b) ||
      (isReordered(a, b, tolerance) && "All of it is there, in another order.") ||
      `${differs[0].toUpperCase()}${differs.slice(1)}. What is looked for: ${sought}.`;
    return { state: "not yet", line };
  };

  // ---- the page ----
  const start = () => {
    const KEY = "transformer_lit.answers";
    const kept = {}; // name of an exercise -> the right answer as it was typed
    const load = () => {
      try {
        const found = Object.entries(JSON.parse(localStorage.getItem(KEY)) ?? {});
        for (const [id, answer] of found) if (typeof answer === "string") kept[id] = answer;
      } catch {} // forbidden, or not ours: `kept` lasts as long as the page
    };
    const save = () => {
      try {
        localStorage.setItem(KEY, JSON.stringify(kept));
      } catch {} // forbidden, or full
    };

    const forms = [...document.querySelectorAll("form.answer")];
    const done = (ids) => `${ids.filter((id) => id in kept).length} of ${ids.length}`;
    const show = () => {
      for (const form of forms) {
        const { exercise } = form.dataset;
        form.classList.toggle("done", exercise in kept);
        const input = form.querySelector("input");
        if (exercise in kept && !input.value) input.value = kept[exercise];
      }
      const card = document.querySelector(".answers-done");
      if (card) card.textContent = done(forms.map((form) => form.dataset.exercise));
      for (const line of document.querySelectorAll(".answers-progress")) {
        const all = JSON.parse(line.dataset.index);
        const next = all.find(([id]) => !(id in kept));
        line.querySelector("strong").textContent = done(all.map(([id]) => id));
        line.querySelector("span").hidden = !next;
        if (next) [line.querySelector("a").textContent, line.querySelector("a").href] = next;
      }
    };
    const SIGNS = { passed: ["right", "✓ "], "not yet": ["wrong", "✗ "] };
    for (const form of forms) {
      const [input, verdict] = [form.querySelector("input"), form.querySelector("[role=status]")];
      const data = JSON.parse(form.dataset.judge);
      const say = (text, state) => {
        const [name, sign] = SIGNS[state] ?? ["", ""];
        verdict.textContent = sign + text.replaceAll("`", "");
        verdict.className = `quiz-verdict ${name}`;
      };
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        const { state, line } = judge(data, input.value);
        say(line, state);
        if (state !== "passed") return;
        load(); // another tab may have answered, too
        kept[form.dataset.exercise] = input.value;
        save();
        show();
      });
      input.addEventListener("input", () => say("")); // it was about another answer
    }
    load();
    show();
    window.addEventListener("storage", () => {
      load();
      show();
    });
  };
  if (typeof module === "object") module.exports = judge; // for tests/test_answers.py
  else start();
}
