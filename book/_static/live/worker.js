// Runs the models outside the page's own thread. Messages in: {id, ask, ...}. Messages out: {id, progress | piece | result |
// error}.

import { beamSearch, candidates, searching } from "./beam.js";
import { Learner } from "./learn.js";
import { bits, opened } from "./lens.js";
import { MODELS } from "./models.js";
import { stream } from "./sampling.js";
import { asTree, readTensors } from "./tensors.js";
import { HALF, readTokenizer } from "./tokenizer.js";

const PAUSE = 40; // ms between two generated tokens, because people read along
let loaded = null; // {model, tokenizer}
let choice = {}; // the settings of the writer; the page may change them while it writes
let whole = {}; // the last caption translated with all heads
let learner = null; // the loaded model while it learns from rewards
let running = null; // the id of the running task; a newer task replaces it
let last = null; // the last text: {begun, tokens}, the ids of the prompt, and the tokens with the vectors that they were drawn from

async function fetched(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url.pathname.split("/").pop()} couldn’t be fetched (status ${answer.status})`);
  return answer;
}

// The body of a response; `told` is called with the share that has arrived.
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

// A file is only used if its SHA-256 is the one in the model's config.json. Browsers can compute it on https pages and on
// pages from this computer.
async function check(file, body, expected) {
  const digest = await globalThis.crypto.subtle?.digest("SHA-256", body);
  const found = digest && [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  if (digest && found !== expected)
    throw new Error(`${file} is not the file of this model: it is damaged, or from another edition. Reload the page`);
}

async function load({ name }, told) {
  const at = (file) => fetched(new URL(`models/${name}/${file}`, import.meta.url));
  const [config, words, weights] = await Promise.all([
    at("config.json").then((answer) => answer.json()),
    at("tokenizer.json").then((answer) => answer.arrayBuffer()),
    at("model.safetensors").then((answer) => bytes(answer, (progress) => told({ progress }))),
  ]);
  await check("tokenizer.json", words, config.files?.["tokenizer.json"]);
  await check("model.safetensors", weights, config.files?.["model.safetensors"]);
  const described = JSON.parse(new TextDecoder().decode(words));
  const tensors = readTensors(weights);
  const stored = new Set(Object.values(tensors).map(({ values }) => values)); // shared weights count once
  const model = new MODELS[config.family ?? "transformer"](asTree(tensors), config.model);
  loaded = { model, tokenizer: readTokenizer(described), lines: config.lines };
  return { parameters: [...stored].reduce((sum, values) => sum + values.length, 0), config: config.model };
}

// A caption as the model reads it, and the settings of the search.
function read(text) {
  const { model, tokenizer } = loaded;
  const strip = /^[\p{White_Space}\x1c-\x1f]+|[\p{White_Space}\x1c-\x1f]+$/gu; // what Python strips
  const ids = tokenizer.encode(text.replace(strip, ""));
  if (!ids.length) throw new Error("There is nothing to translate. Type a sentence.");
  const most = model.config.max_len - 1; // the end token takes one position
  if (ids.length > most) throw new Error(`The caption has ${ids.length} tokens, but the model takes at most ${most}. Split it.`);
  const { bos, eos } = tokenizer;
  return { src: [...ids, eos], how: { bos, eos, maxLen: Math.min(2 * ids.length + 10, model.config.max_len) } };
}

const piece = (id) => (id === loaded.tokenizer.eos ? "(end)" : loaded.tokenizer.decode([id]));
const breathe = () => new Promise((resolve) => setTimeout(resolve));

// from rows[t][head] to heads[head][t]
const byHead = (rows) => rows[0].map((_, head) => rows.map((row) => Array.from(row[head])));

async function translate({ id, text, beam }, told) {
  const { model, tokenizer } = loaded;
  const { src, how } = read(text);
  const started = performance.now();
  const search = searching(model, src, { ...how, beam });
  running = id;
  let next;
  while (!(next = search.next()).done) {
    told({ text: tokenizer.decode(next.value) });
    await breathe(); // so that a message to stop can arrive
    if (running !== id) return { stopped: true };
  }
  const { best, finished, steps } = next.value;
  const seconds = (performance.now() - started) / 1000;
  const heard = model.watch(src, [how.bos, ...best.ids], /cross_attn\.weights$/);
  return {
    text: tokenizer.decode(best.ids),
    seconds,
    best,
    finished: finished.map((one) => ({ ...one, text: tokenizer.decode(one.ids) })),
    steps: steps.map((nodes) => nodes.map((node) => ({ ...node, text: piece(node.token) }))),
    source: src.map(piece),
    target: [...best.ids, how.eos].map(piece),
    weights: Object.values(heard).map(byHead),
  };
}

// A greedy translation with these heads cut, and the outputs of the wanted parts for it.
function inside(text, cut, wanted) {
  const { model, tokenizer } = loaded;
  const { src, how } = read(text);
  model.cut = cut;
  const { ids } = beamSearch(model, src, { ...how, beam: 1 }).best;
  return {
    text: tokenizer.decode(ids),
    source: src.map(piece),
    target: ["(begin)", ...ids.map(piece)], // as the decoder reads it
    heard: model.watch(src, [how.bos, ...ids], wanted),
  };
}

// The weights of every head, by the name of its attention, and the translation with all heads.
function heads({ text, cut }) {
  if (whole.of !== text) whole = { of: text, text: inside(text, {}, /^$/).text };
  const { heard, ...found } = inside(text, cut, /\.weights$/);
  const weights = Object.entries(heard).map(([name, rows]) => [name.replace(".weights", ""), byHead(rows)]);
  return { ...found, whole: whole.text, weights: Object.fromEntries(weights) };
}

// Every vector of the forward pass, and the five most probable next tokens after each piece that the decoder has read.
function walk({ text }) {
  const found = inside(text, {}, /^(?!.*\.weights$)/);
  const five = (logits) => candidates([logits], [0], 5).map(({ token, logProb }) => [piece(token), Math.exp(logProb)]);
  return { ...found, next: found.heard.lm_head.map(five) };
}

// Continue a prompt or, with `from`, the last text after replacing one of its tokens.
async function write({ id, prompt, from, maxNew, ...asked }, told) {
  choice = asked.choice;
  const { model, tokenizer, lines } = loaded;
  if (!from) last = { begun: tokenizer.encode(lines ? `\n${prompt}` : prompt || "\n"), tokens: [] };
  const { begun, tokens } = last;
  const kept = from?.at ?? 0;
  const add = (place) => {
    tokens.push(place);
    told({ piece: tokenizer.added(tokens.map(({ token }) => token)), bits: bits(model.read(place.heights.at(-1))) });
    return lines && tokenizer.piece(place.token) === "\n"; // a text that is one line ends with the line
  };
  let over = from && add({ ...tokens.splice(kept)[0], token: from.token });
  running = id;
  const ids = [...begun, ...tokens.map(({ token }) => token)];
  const how = { maxNew: over ? 0 : maxNew, maxLen: model.config.max_len, choice: () => choice };
  for (const { token, state } of stream(model, ids, how)) {
    over = add({ token, heights: state.heights[0], seen: state.length });
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    if (over || running !== id) break;
  }
  return { count: tokens.length - kept, stopped: running !== id };
}

// The candidates for a token of the last text, and what each depth predicted.
function look({ at }) {
  const { model, tokenizer } = loaded;
  const { token, heights, seen } = last.tokens[at];
  const before = last.tokens.slice(0, at).map(({ token }) => token);
  const piece = (id) => {
    const text = tokenizer.added([...before, id]);
    return text.includes(HALF) || text.includes("\ufffd") ? tokenizer.piece(id) : text; // shown as bytes if it isn't text
  };
  const { top, lens, ...rest } = opened(heights.map((x) => model.read(x)), token);
  return {
    ...rest,
    ...{ token, seen, piece: piece(token), size: model.config.vocab_size },
    top: top.map((one) => ({ ...one, piece: piece(one.id) })),
    lens: lens.map((one) => ({ ...one, piece: piece(one.first) })),
  };
}

// Steps of learning from rewards; `told` is called after each.
async function reinforce({ id, steps, fresh }, told) {
  if (fresh) learner = new Learner(loaded);
  running = id;
  for (let n = 0; n < steps && running === id; n++) {
    const started = performance.now();
    const groups = learner.step();
    told({ groups, seconds: (performance.now() - started) / 1000 });
    await breathe(); // so that a message to stop can arrive
  }
}

const TASKS = {
  load,
  reinforce,
  translate,
  heads,
  walk,
  write,
  look,
  choose: (message) => void (choice = message.choice),
  stop: () => void (running = null),
};

addEventListener("message", async ({ data }) => {
  const told = (part) => postMessage({ id: data.id, ...part });
  try {
    told({ result: await TASKS[data.ask](data, told) });
  } catch (error) {
    told({ error: error.message });
  }
});
