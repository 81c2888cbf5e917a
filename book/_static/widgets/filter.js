// A long table or a glossary, with controls above it: a search field, a menu for each column that the page names in
// `data-by`, and letters to jump to.
import { chooser, controls, labelled, make } from "./parts.js";

const CUT = " · "; // separates the values of a cell that holds several

// The entries that are shown or hidden: their text, their values by column, and the elements that make them up.
function rows(root) {
  const head = [...root.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
  return [...root.querySelectorAll("tbody tr")].map((row) => ({
    text: row.textContent.toLowerCase(),
    values: Object.fromEntries([...row.cells].map((cell, i) => [head[i], cell.textContent.trim()])),
    nodes: [row],
  }));
}

// A definition belongs to the terms above it.
function entries(list) {
  const found = [];
  let terms = [];
  for (const node of list.children) {
    terms.push(node);
    if (node.tagName !== "DD") continue;
    const text = terms.map((term) => term.textContent).join(" ");
    found.push({ text: text.toLowerCase(), values: {}, nodes: terms });
    terms = [];
  }
  return found;
}

function letters(all) {
  const first = new Map();
  for (const { nodes } of all) {
    const letter = nodes[0].textContent.trim()[0].toUpperCase();
    if (/[A-Z]/.test(letter) && !first.has(letter)) first.set(letter, nodes[0].id);
  }
  const links = [...first].map(([letter, id]) => make("a", { href: `#${id}` }, letter));
  return make("nav", { class: "filter-letters", "aria-label": "Jump to a letter" }, links);
}

export function mount(root, say) {
  const list = root.querySelector("dl");
  const all = list ? entries(list) : rows(root);
  const chosen = {};
  let word = "";

  const show = () => {
    const fits = ({ text, values }) =>
      text.includes(word) && Object.entries(chosen).every(([by, one]) => !one || values[by].split(CUT).includes(one));
    const shown = all.filter((entry) => {
      const fit = fits(entry);
      for (const node of entry.nodes) node.hidden = !fit;
      return fit;
    });
    const minutes = shown.reduce((sum, { values }) => sum + Number(values.minutes ?? 0), 0);
    say(`${shown.length} of ${all.length}${minutes ? `, ${minutes} minutes` : ""}`);
  };

  const search = make("input", { type: "search", autocomplete: "off" });
  search.addEventListener("input", () => {
    word = search.value.trim().toLowerCase();
    show();
  });
  const choices = (root.dataset.by?.split(", ") ?? []).map((by) => {
    const values = [...new Set(all.flatMap(({ values }) => values[by].split(CUT)))];
    const options = [["", "all"], ...values.map((value) => [value, value])];
    const act = (value) => {
      chosen[by] = value;
      show();
    };
    return labelled(by[0].toUpperCase() + by.slice(1), chooser(options, "", act));
  });
  root.prepend(controls(labelled("Containing", search), choices));
  if (list) root.querySelector(".widget-row").after(letters(all));
  show();
}
