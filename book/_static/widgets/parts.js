// What all widgets are built of. A widget is a module in this folder with `mount(root, say)`: it fills its element and
// returns a promise where it must load something; `say` shows one line to everybody. Styles: widgets.css.

let made = 0;

// An element: make("p", { class: "note", onclick: act }, "text", child). Texts are never read as HTML.
export function make(tag, attributes = {}, ...children) {
  const space = SVG.has(tag) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const node = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child != null));
  return node;
}
const SVG = new Set(["svg", "g", "path", "rect", "text", "line", "circle", "polyline", "title"]);

// What the reader turns, side by side.
export const controls = (...inside) => make("div", { class: "widget-row" }, ...inside);

// `keeper(chosen, show)("rate")` is a handler that keeps what was chosen as `chosen.rate`, and shows it.
export const keeper = (chosen, show) => (name) => (value) => ((chosen[name] = value), show());

// A drawing; `label` says what is seen.
export const picture = (kind, label, width, height, ...inside) =>
  make("svg", { class: kind, role: "img", "aria-label": label, width, height, viewBox: `0 0 ${width} ${height}` }, ...inside);

// A control with its label above it.
export function labelled(label, control) {
  control.id ||= `widget-${(made += 1)}`;
  return make("div", { class: "widget-field" }, make("label", { for: control.id }, label), control);
}

// A choice among [value, text] pairs.
export function chooser(options, value, onchange) {
  const entries = options.map(([key, text]) => make("option", { value: key, selected: key === value }, text));
  return make("select", { onchange: (event) => onchange(event.target.value) }, entries);
}

// A slider that shows its value; `text` says it in words.
export function slider({ label, min, max, step, value, text = String, oninput }) {
  const input = make("input", { type: "range", min, max, step, value, id: `widget-${(made += 1)}` });
  const shown = make("span", { "aria-hidden": "true" }); // the slider itself says it
  const show = () => {
    shown.textContent = text(Number(input.value));
    input.setAttribute("aria-valuetext", shown.textContent);
  };
  input.addEventListener("input", () => {
    show();
    oninput(Number(input.value));
  });
  show();
  const head = make("span", {}, make("label", { for: input.id }, label), " ", shown);
  return make("div", { class: "widget-field" }, head, input);
}

// A slider over powers of two.
export const powers = ({ value, text, oninput, ...rest }) =>
  slider({
    ...{ step: 1, ...rest, value: Math.log2(value) },
    text: (power) => text(2 ** power),
    oninput: (power) => oninput(2 ** power),
  });

export const button = (text, onclick, attributes = {}) =>
  make("button", { type: "button", class: "widget-button", onclick, ...attributes }, text);

// What is wider than the page scrolls by itself, with the keyboard too.
export const scroller = (label, ...children) =>
  make("div", { class: "widget-scroll", tabindex: 0, role: "group", "aria-label": label }, ...children);

// A widget of a chapter: its title, a line that says what to try, and its parts.
export function frame(root, title, hint, ...children) {
  const head = make("p", { class: "widget-title", id: `widget-${(made += 1)}` }, title);
  root.setAttribute("role", "group");
  root.setAttribute("aria-labelledby", head.id);
  root.replaceChildren(head, make("p", { class: "widget-hint" }, "Try: ", hint), ...children);
}

// A line for an English caption, with the button that sends it: [caption, form].
export function captionForm(word, run) {
  const caption = make("input", { type: "text", value: "A man is riding a bike.", autocomplete: "off", lang: "en" });
  const onsubmit = (event) => (event.preventDefault(), run());
  const field = make("div", { class: "widget-grow" }, labelled("English caption", caption));
  return [caption, make("form", { class: "widget-row", onsubmit }, field, make("button", { class: "widget-button" }, word))];
}

// What a widget says about its state: one sentence, read aloud when it changes.
export const verdict = () => make("output", { class: "widget-result widget-text", "aria-live": "polite" });

// Texts are only touched where they change, so that nothing is read aloud twice.
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const number = (value, digits = 2) => value.toFixed(digits).replace("-", "−");

// 0.00123 as 1.23 · 10⁻³
export function small(value, places = 2) {
  const [digits, power] = value.toExponential(places).split("e");
  return `${digits} · 10${[...power].map((sign) => ({ "-": "⁻", "+": "" })[sign] ?? "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign]).join("")}`;
}

export async function data(name) {
  const answer = await fetch(new URL(name, import.meta.url));
  if (!answer.ok) throw new Error(`${name} did not arrive (${answer.status})`);
  return answer.json();
}

// Draw now, and again whenever the place has another width; `draw` gets it, in pixels.
export function fitted(place, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (Math.floor(place.clientWidth) === width) return;
    width = Math.floor(place.clientWidth);
    if (width) draw(width); // what is not shown has none
  }).observe(place);
  return () => width && draw(width);
}

// The letter of a query, a key or a value, in its colour.
export const hue = (letter) => make("span", { class: `tl-${letter}` }, letter);

// A table with its head; `cells` are elements or texts.
export const table = (attributes, caption, head, rows) =>
  make(
    "table",
    attributes,
    caption ? make("caption", {}, caption) : null,
    make("thead", {}, make("tr", {}, head.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, rows),
  );

// A part that can be folded away.
export const fold = (title, open, ...children) =>
  make("details", { class: "widget-part", open }, make("summary", {}, title), ...children);
