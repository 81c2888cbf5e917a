// A decoder that learns from rewards: the parts of layers.js with their gradients, and one step of GRPO.
// A vector is {value, grad}, and each part records its backward pass on a tape. All numbers are doubles.

import * as F from "./layers.js";
import { Llama } from "./models.js";
import { nextToken } from "./sampling.js";

const [QUESTIONS, GROUP, DIGITS, LONGEST] = [8, 8, 8, 12]; // LONGEST: the maximum number of tokens in an answer
const [RATE, SLOW, SLOWER, EPS] = [3e-4, 0.9, 0.95, 1e-8]; // of Adam
let tape = [];

function noted(value, back) {
  const out = { value, grad: new Float64Array(value.length) };
  tape.push(() => back(out.grad));
  return out;
}

function embed({ weight }, id) {
  const back = (grad) => grad.forEach((g, i) => (weight.grad[id * grad.length + i] += g));
  return noted(F.embed({ weight }, id), back);
}

function linear({ weight }, x) {
  return noted(F.linear({ weight }, x.value), (grad) => {
    const size = x.value.length;
    for (let row = 0; row < grad.length; row++) {
      const [g, from] = [grad[row], row * size];
      if (g === 0) continue;
      for (let i = 0; i < size; i++) {
        weight.grad[from + i] += g * x.value[i];
        x.grad[i] += g * weight.values[from + i];
      }
    }
  });
}

function add(x, y) {
  return noted(F.add(x.value, y.value), (grad) => {
    for (const one of [x, y]) grad.forEach((g, i) => (one.grad[i] += g));
  });
}

function rmsNorm({ weight }, x, eps) {
  return noted(F.rmsNorm({ weight }, x.value, eps), (grad) => {
    const [{ value }, size] = [x, x.value.length];
    const scale = 1 / Math.sqrt(F.dot(value, 0, value, 0, size) / size + eps);
    const given = grad.map((g, i) => g * weight.values[i]);
    const along = (scale ** 2 * F.dot(given, 0, value, 0, size)) / size; // the part that would change the length
    for (let i = 0; i < size; i++) {
      weight.grad[i] += grad[i] * value[i] * scale;
      x.grad[i] += scale * (given[i] - along * value[i]);
    }
  });
}

// The gradient is rotated back by the same angle.
function rotate(x, pos, D, base) {
  const back = (grad) => F.rotate(grad, -pos, D, base).forEach((g, i) => (x.grad[i] += g));
  return noted(F.rotate(x.value, pos, D, base), back);
}

// Here, there are as many key/value heads as query heads.
function attend(q, cache, nHeads) {
  const [keys, values] = [[...cache.keys], [...cache.values]]; // copies, because the cache grows
  const numbers = { keys: keys.map(({ value }) => value), values: values.map(({ value }) => value) };
  const { out, weights } = F.attend(q.value, numbers, nHeads);
  const back = (grad) => {
    const D = grad.length / nHeads;
    weights.forEach((row, head) => {
      const from = head * D;
      const given = Float64Array.from(numbers.values, (v) => F.dot(grad, from, v, from, D)); // the derivative with respect to each weight
      const mean = F.dot(row, 0, given, 0, row.length);
      row.forEach((w, s) => {
        const score = (w * (given[s] - mean)) / Math.sqrt(D); // the derivative with respect to q·k
        for (let d = from; d < from + D; d++) {
          values[s].grad[d] += w * grad[d];
          keys[s].grad[d] += score * q.value[d];
          q.grad[d] += score * keys[s].value[d];
        }
      });
    });
  };
  return { out: noted(out, back), weights };
}

// silu(a) · b
function gated(a, b) {
  const open = a.value.map((x) => 1 / (1 + Math.exp(-x)));
  return noted(a.value.map((x, i) => x * open[i] * b.value[i]), (grad) =>
    grad.forEach((g, i) => {
      a.grad[i] += g * b.value[i] * open[i] * (1 + a.value[i] * (1 - open[i]));
      b.grad[i] += g * a.value[i] * open[i];
    }),
  );
}

const gatedFeedForward = ({ gate_proj, up_proj, down_proj }, x) =>
  linear(down_proj, gated(linear(gate_proj, x), linear(up_proj, x)));

const PARTS = { embed, linear, add, rmsNorm, rotate, attend, gatedFeedForward };

// The last digit of the sum must come after the last ">", followed by the end.
export function isRight(question, answer) {
  const sum = [...question.slice(0, -1)].reduce((total, digit) => total + Number(digit), 0);
  return new RegExp(`>${sum % 10}\\$$`).test(answer);
}

// The rewards minus their mean over the group, divided by their standard deviation; 0 if all are equal.
export function advantages(rewards) {
  const mean = rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
  const deviation = Math.sqrt(rewards.reduce((sum, reward) => sum + (reward - mean) ** 2, 0) / rewards.length);
  return rewards.map((reward) => (deviation ? (reward - mean) / deviation : 0));
}

const learned = (node) => (node.shape ? [node] : Object.values(node).flatMap(learned));

function doubled(node) {
  if (!node.shape) return Object.fromEntries(Object.entries(node).map(([key, one]) => [key, doubled(one)]));
  const zeros = () => new Float64Array(node.values.length);
  return { shape: node.shape, values: Float64Array.from(node.values), grad: zeros(), mean: zeros(), square: zeros() };
}

export class Learner {
  constructor({ model, tokenizer }) {
    this.model = new Llama(doubled(model.weights), model.config, PARTS);
    this.weights = learned(this.model.weights);
    this.tokenizer = tokenizer;
    [this.end] = tokenizer.encode("$");
    this.steps = 0;
  }

  // Answers to a question; `choose(logits, n)` returns the next token of answer n. Each token is stored with its logits.
  answers(question, number, choose) {
    const [ids, state] = [this.tokenizer.encode(question), this.model.start()];
    let first;
    for (const id of ids) [first] = this.model.step([id], state);
    state.select(Array(number).fill(0));
    return state.caches.map((caches, n) => {
      const tokens = [];
      for (let logits = first; ; ) {
        const token = choose(logits.value, n);
        tokens.push({ token, logits });
        if (token === this.end || tokens.length === LONGEST) return tokens;
        logits = this.model.read(this.model.heights(token, ids.length + tokens.length - 1, caches).at(-1));
      }
    });
  }

  // Each answer with its text, its reward and its advantage.
  judged(question, answers) {
    const texts = answers.map((tokens) => this.tokenizer.decode(tokens.map(({ token }) => token)));
    const rewards = texts.map((text) => Number(isRight(question, text)));
    const better = advantages(rewards);
    return answers.map((tokens, n) => ({ tokens, text: texts[n], reward: rewards[n], advantage: better[n] }));
  }

  // The backward pass: the gradient of −Σ A log π / Z with respect to every weight.
  backward(answers) {
    const divisor = answers.length * 20; // Z, a constant
    for (const { tokens, advantage } of answers) {
      for (const { token, logits } of tokens) {
        const pull = advantage / divisor;
        F.softmax(logits.value).forEach((p, id) => (logits.grad[id] += pull * (p - Number(id === token))));
      }
    }
    while (tape.length) tape.pop()();
  }

  // One step of Adam. Afterwards the gradients are 0 again.
  update() {
    this.steps += 1;
    const [first, second] = [1 - SLOW ** this.steps, 1 - SLOWER ** this.steps];
    for (const { values, grad, mean, square } of this.weights) {
      for (let i = 0; i < grad.length; i++) {
        mean[i] += (1 - SLOW) * (grad[i] - mean[i]);
        square[i] += (1 - SLOWER) * (grad[i] ** 2 - square[i]);
        values[i] -= (RATE * mean[i]) / first / (Math.sqrt(square[i] / second) + EPS);
      }
      grad.fill(0);
    }
  }

  // Draw new questions, sample a group of answers to each, and take one step. The result can be sent as a message.
  step(random = Math.random) {
    tape = [];
    const groups = Array.from({ length: QUESTIONS }, () => {
      const digits = Array.from({ length: DIGITS }, () => Math.floor(10 * random()));
      const question = `${digits.join("")}=`;
      const answers = this.answers(question, GROUP, (logits) => nextToken(logits, {}, random));
      return { question, answers: this.judged(question, answers) };
    });
    this.backward(groups.flatMap(({ answers }) => answers));
    this.update();
    return groups.map(({ question, answers }) => ({ question, answers: answers.map(({ tokens, ...told }) => told) }));
  }
}
