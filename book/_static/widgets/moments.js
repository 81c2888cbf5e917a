// The first training run at seven moments: the recorded answers of four models to a hundred new numbers.

import { chooser, controls, data, frame, keeper, labelled, make, number, slider, verdict, write } from "./parts.js";

export async function mount(root) {
  const { at, numbers, texts, models } = await data("data/moments.json");
  const chosen = { model: "whole", look: 4, number: 2 }; // indices into the record
  const said = verdict();
  const grid = make("div", { class: "widget-hundred", role: "img" });
  const cells = numbers.map((_, place) => make("span", { onclick: () => choose(place) }));
  grid.append(...cells);

  function show() {
    const { losses, said: spoken } = models[chosen.model];
    const answers = spoken[chosen.look].map((text) => texts[text]);
    const right = answers.map((text, place) => text === numbers[place].german);
    const count = right.filter(Boolean).length;
    const { digits, german } = numbers[chosen.number];
    const trained = chosen.look ? `After ${at[chosen.look]} steps, at a mean loss of ${number(losses[chosen.look])} in the last ten,` : "Before the first step";
    const judged = right[chosen.number] ? "which is right" : `instead of “${german}”`;
    write(
      said,
      `${chosen.model[0].toUpperCase()}${chosen.model.slice(1)}. ${trained} ${count} of 100 new numbers are right. ` +
        `For ${digits}, the model answers ${answers[chosen.number] ? `“${answers[chosen.number]}”` : "nothing"}, ${judged}.`,
    );
    cells.forEach((cell, place) => {
      cell.classList.toggle("right", right[place]);
      cell.classList.toggle("chosen", place === chosen.number);
    });
    grid.setAttribute("aria-label", `A hundred new numbers, from small to large. The squares of the ${count} right answers are filled`);
  }
  const turn = keeper(chosen, show);
  const choose = (place) => {
    asked.value = place;
    turn("number")(place);
  };
  const names = Object.keys(models).map((name) => [name, name]);
  const asked = chooser(numbers.map(({ digits, english }, place) => [place, `${digits} ${english}`]), chosen.number, (place) => turn("number")(Number(place)));
  frame(
    root,
    "Four models, seven moments, a hundred new numbers",
    "move through the steps of the whole model. A filled square is a number that it gets right; press one to see the answer. Then choose the model without the mask, and compare its loss with its squares.",
    controls(
      labelled("Model", chooser(names, chosen.model, turn("model"))),
      slider({
        label: "Training steps",
        ...{ min: 0, max: at.length - 1, step: 1, value: chosen.look },
        text: (look) => String(at[look]),
        oninput: turn("look"),
      }),
      labelled("New number", asked),
    ),
    said,
    grid,
  );
  show();
}
