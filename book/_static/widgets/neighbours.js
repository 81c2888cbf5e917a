// A trained embedding: the tokens whose rows point in nearly the same direction as the row of a word.

import { controls, data, frame, labelled, make, number, table, verdict, write } from "./parts.js";

const BEGIN = "bike";

export async function mount(root) {
  const { tokens, near, untrained } = await data("data/neighbours.json");
  const places = new Map(tokens.map((token, place) => [token, place]));
  const said = verdict();
  const list = make("datalist", { id: "widget-tokens-known" }, tokens.map((token) => make("option", { value: token })));
  const rows = make("div");

  function show() {
    const place = places.get(word.value.trim());
    if (place == null) return write(said, `“${word.value}” is not one of the ${tokens.length.toLocaleString("en")} tokens of this list.`);
    const found = near[place];
    const lines = found.map(([other, cosine]) => {
      const walk = make("button", { type: "button", class: "widget-button widget-small", onclick: () => choose(tokens[other]) }, tokens[other]);
      const bar = make("td", { class: "widget-bar", style: `--weight: ${cosine}` }, number(cosine));
      return make("tr", {}, make("th", { scope: "row" }, walk), bar);
    });
    rows.replaceChildren(table({ class: "widget-table widget-bars" }, `Press a neighbour to go on from there. In an untrained table of this size, the nearest row has a cosine of ${number(untrained)} on average`, ["neighbour", "cosine"], lines));
    const named = found.slice(0, 3).map(([other, cosine]) => `“${tokens[other]}” (${number(cosine)})`);
    write(said, `Nearest to “${tokens[place]}”: ${named.join(", ")}.`);
  }
  function choose(token) {
    word.value = token;
    show();
    word.focus();
  }
  const word = make("input", { type: "text", value: BEGIN, list: list.id, autocomplete: "off", spellcheck: "false", oninput: show });
  show();
  frame(
    root,
    "Neighbours in a trained embedding",
    "type man, playing, red or zwei, and press a neighbour to go on. Are the words of the two languages neighbours of each other?",
    controls(make("div", { class: "widget-grow" }, labelled("English or German word", word), list)),
    rows,
    said,
  );
}
