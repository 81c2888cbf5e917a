// The models, off the page's own thread. Messages: {id, ask, ...} in; {id, progress | piece | result | error} out.

import { beamSearch } from "./beam.js";
import { bits, opened } from "./lens.js";
import { MODELS } from "./models.js";
import { stream } from "./sampling.js";
import { asTree, readTensors } from "./tensors.js";
import { readTokenizer } from "./tokenizer.js";

const PAUSE = 40; // ms between two tokens that are written: people read along
let loaded = null; // {model, tokenizer}
let choice = {}; // of the writer; the page may change it while the writer writes
let writing = null; // the id of what is being written
let last = null; // what was written last: {begun, tokens}, ids and tokens with what they were drawn from

async function fetched(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url.pathname.split("/").pop()} did not arrive (${answer.status})`);
  return answer;
}

// The body of an answer, told of in parts.
async function bytes(answer, told) {
  const total = Number(answer.headers.get("Content-Length")) || Infinity;
  const [parts, reader] = [[], answer.body.getReader()];
  let size = 0;
  for (let next; !(next = await reader.read()).done; told(Math.min(1, size / total))) {
    parts.push(next.value);
    size += next.value.length;
  }
  return new Blob(parts).arrayBuffer();
}

async function load({ name }, told) {
  const at = (file) => fetched(new URL(`models/${name}/${file}`, import.meta.url));
  const [config, described, weights] = await Promise.all([
    at("config.json").then((answer) => answer.json()),
    at("tokenizer.json").then((answer) => answer.json()),
    at("model.safetensors").then((answer) => bytes(answer, (progress) => told({ progress }))),
  ]);
  const tensors = readTensors(weights);
  const stored = new Set(Object.values(tensors).map(({ values }) => values)); // what is shared counts once
  const model = new MODELS[config.family ?? "transformer"](asTree(tensors), config.model);
  loaded = { model, tokenizer: readTokenizer(described), lines: config.lines };
  return { parameters: [...stored].reduce((sum, values) => sum + values.length, 0), config: config.model };
}

function translate({ text, beam }) {
  const { model, tokenizer } = loaded;
  const strip = /^[\p{White_Space}\x1c-\x1f]+|[\p{White_Space}\x1c-\x1f]+$/gu; // what Python strips
  const ids = tokenizer.encode(text.replace(strip, ""));
  if (!ids.length) throw new Error("There is nothing to translate: type a caption.");
  const most = model.config.max_len - 1; // the end takes one
  if (ids.length > most) throw new Error(`The caption has ${ids.length} tokens, the model takes ${most}; split it.`);
  const { bos, eos } = tokenizer;
  const src = [...ids, eos];
  const started = performance.now();
  const maxLen = Math.min(2 * ids.length + 10, model.config.max_len);
  const { best, finished, steps } = beamSearch(model, src, { bos, eos, maxLen, beam });
  const seconds = (performance.now() - started) / 1000;
  const piece = (id) => (id === eos ? "(end)" : tokenizer.decode([id]));
  return {
    text: tokenizer.decode(best.ids),
    seconds,
    best,
    finished: finished.map((one) => ({ ...one, text: tokenizer.decode(one.ids) })),
    steps: steps.map((nodes) => nodes.map((node) => ({ ...node, text: piece(node.token) }))),
    source: src.map(piece),
    target: [...best.ids, eos].map(piece),
    weights: model.crossAttention(src, [bos, ...best.ids]),
  };
}

// Write on from a prompt, or, with `from`, from another token at a place of the last text.
async function write({ id, prompt, from, maxNew, ...asked }, told) {
  choice = asked.choice;
  const { model, tokenizer, lines } = loaded;
  if (!from) last = { begun: tokenizer.encode(lines ? `\n${prompt}` : prompt || "\n"), tokens: [] };
  const { begun, tokens } = last;
  const kept = from?.at ?? 0;
  const add = (place) => {
    tokens.push(place);
    told({ piece: tokenizer.piece(place.token), bits: bits(model.read(place.heights.at(-1))) });
    return lines && tokenizer.piece(place.token) === "\n"; // a line ends where it ends
  };
  let over = from && add({ ...tokens.splice(kept)[0], token: from.token });
  writing = id;
  const ids = [...begun, ...tokens.map(({ token }) => token)];
  const how = { maxNew: over ? 0 : maxNew, maxLen: model.config.max_len, choice: () => choice };
  for (const { token, state } of stream(model, ids, how)) {
    over = add({ token, heights: state.heights[0], seen: state.length });
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    if (over || writing !== id) break;
  }
  return { count: tokens.length - kept, stopped: writing !== id };
}

// What stood behind a token of the last text.
function look({ at }) {
  const { model, tokenizer } = loaded;
  const { token, heights, seen } = last.tokens[at];
  const piece = (id) => tokenizer.piece(id);
  const { top, lens, ...rest } = opened(heights.map((x) => model.read(x)), token);
  return {
    ...rest,
    ...{ token, seen, piece: piece(token), size: model.config.vocab_size },
    top: top.map((one) => ({ ...one, piece: piece(one.id) })),
    lens: lens.map((one) => ({ ...one, piece: piece(one.first) })),
  };
}

const TASKS = {
  load,
  translate,
  write,
  look,
  choose: (message) => void (choice = message.choice),
  stop: () => void (writing = null),
};

addEventListener("message", async ({ data }) => {
  const told = (part) => postMessage({ id: data.id, ...part });
  try {
    told({ result: await TASKS[data.ask](data, told) });
  } catch (error) {
    told({ error: error.message });
  }
});
