// A model written down as a table: for each prefix, the words that can follow, with their probabilities. A prefix that is
// not in the table is certain to end.

import { beamSearch } from "./beam.js";

export class TableModel {
  bos = 0;
  eos = 1;

  constructor({ table, end }) {
    const rows = Object.values(table).flatMap((row) => Object.keys(row));
    this.table = table;
    this.words = [...new Set(["", end, ...rows])];
  }

  text(ids) {
    return ids.map((id) => this.words[id]).join(" ");
  }

  // The words that can follow, by their ids.
  follow(ids) {
    const row = this.table[this.text(ids)] ?? { [this.words[this.eos]]: 1 };
    return Object.entries(row).map(([word, p]) => [this.words.indexOf(word), p]);
  }

  start() {
    return {
      rows: [[]],
      select(rows) {
        this.rows = rows.map((row) => this.rows[row]);
      },
    };
  }

  step(ids, state) {
    state.rows = state.rows.map((row, r) => (ids[r] === this.bos ? row : [...row, ids[r]]));
    return state.rows.map((row) => {
      const logits = new Float64Array(this.words.length).fill(-Infinity);
      for (const [id, p] of this.follow(row)) logits[id] = Math.log(p);
      return logits;
    });
  }
}

// A beam search with this model that also keeps the dropped hypotheses. Each step holds all its candidates, best first:
// {ids, text, logProb, ends, parent, state}, where the state is "open", "finished" or "dropped".
export function searchTable(model, { beam, alpha, maxLen }) {
  const { bos, eos } = model;
  const found = beamSearch(model, [], { bos, eos, beam, alpha, maxLen });
  let before = [{ ids: [], logProb: 0, state: "open" }];
  const steps = found.steps.map((kept, t) => {
    const states = new Map(kept.map(({ ids, ends }) => [ids.join(), ends ? "finished" : "open"]));
    before = before
      .flatMap(({ ids, logProb, state }, place) => {
        const following = state === "open" ? model.follow(ids) : [];
        return following.map(([token, p]) => {
          const longer = [...ids, token];
          return {
            ids: longer,
            text: model.words[token],
            logProb: logProb + Math.log(p),
            ends: token === eos,
            parent: t ? place : -1,
            state: states.get(longer.join()) ?? "dropped",
          };
        });
      })
      .sort((a, b) => b.logProb - a.logProb);
    return before;
  });
  return { ...found, steps };
}
