// The parts that all widgets are built from. A widget is a module in this folder with a function `mount(root, say)`, which
// fills the element `root`. It returns a promise if it has to load something, and `say` shows a line of text meanwhile.
// The styles are in widgets.css.

let made = 0;

// Make an element: make("p", { class: "note", onclick: act }, "text", child). Texts are never read as HTML.
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

// Controls, side by side.
export const controls = (...inside) => make("div", { class: "widget-row" }, ...inside);

// `keeper(chosen, show)("rate")` is a handler that stores the chosen value as `chosen.rate` and then calls `show`.
export const keeper = (chosen, show) => (name) => (value) => ((chosen[name] = value), show());

// A drawing; `label` describes it for screen readers.
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

// A slider that shows its value; `text` turns the value into words.
export function slider({ label, min, max, step, value, text = String, oninput }) {
  const input = make("input", { type: "range", min, max, step, value, id: `widget-${(made += 1)}` });
  const shown = make("span", { "aria-hidden": "true" }); // screen readers get the value from the slider itself
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

// Move a slider to a value, as if the reader had.
export function slide(field, value) {
  const input = field.querySelector("input");
  input.value = value;
  input.dispatchEvent(new Event("input"));
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

// A box for content that may be wider than the page. It scrolls on its own, also with the keyboard.
export const scroller = (label, ...children) =>
  make("div", { class: "widget-scroll", tabindex: 0, role: "group", "aria-label": label }, ...children);

// The frame of a widget in a chapter: its title, a line with something to try, and its parts.
export function frame(root, title, hint, ...children) {
  const head = make("p", { class: "widget-title", id: `widget-${(made += 1)}` }, title);
  root.setAttribute("role", "group");
  root.setAttribute("aria-labelledby", head.id);
  root.replaceChildren(head, make("p", { class: "widget-hint" }, "Try: ", hint), ...children);
}

// A field for an English caption, with the button that submits it: [caption, form].
export function captionForm(word, run) {
  const caption = make("input", { type: "text", value: "A man is riding a bike.", autocomplete: "off", lang: "en" });
  const onsubmit = (event) => (event.preventDefault(), run());
  const field = make("div", { class: "widget-grow" }, labelled("English caption", caption));
  return [caption, make("form", { class: "widget-row", onsubmit }, field, make("button", { class: "widget-button" }, word))];
}

// The line that describes the state of a widget. Screen readers read it aloud when it changes.
export const verdict = () => make("output", { class: "widget-result widget-text", "aria-live": "polite" });

// Set a text only if it changes, so that nothing is read aloud twice.
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
  if (!answer.ok) throw new Error(`${name} couldn’t be fetched (status ${answer.status})`);
  return answer.json();
}

// Draw now, and again whenever the width of the place changes; `draw` is called with the width in pixels.
export function fitted(place, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (Math.floor(place.clientWidth) === width) return;
    width = Math.floor(place.clientWidth);
    if (width) draw(width); // a hidden element has no width
  }).observe(place);
  return () => width && draw(width);
}

// The letter of a query, a key or a value, in its colour.
export const hue = (letter) => make("span", { class: `tl-${letter}` }, letter);

// A table with its head; cells are elements or texts.
export const table = (attributes, caption, head, rows) =>
  make(
    "table",
    attributes,
    caption ? make("caption", {}, caption) : null,
    make("thead", {}, make("tr", {}, head.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, rows),
  );

// A part that can be collapsed.
export const fold = (title, open, ...children) =>
  make("details", { class: "widget-part", open }, make("summary", {}, title), ...children);
