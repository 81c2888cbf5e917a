// The two kinds of shipped model, built from the parts. Their weights have the same names as in the package.
// The two classes have the methods that decoding needs: start(src) -> state, step(ids, state) -> logits of each row.

import * as F from "./layers.js";

// The encoder–decoder of 2017, with the norm before each sublayer. Parts have the same names as in the package: `told` is
// called with the output of each part, and `cut` lists the heads of an attention whose output is set to 0.
export class Transformer {
  constructor(weights, config) {
    if (config.residual !== "pre") throw new Error(`this page can only run pre-norm models, not the wiring ${config.residual}`);
    this.weights = weights;
    this.config = config;
    this.layers = [...Array(config.n_layers).keys()];
    this.told = () => {};
    this.cut = {};
  }

  tell(name, value) {
    this.told(name, value);
    return value;
  }

  part(name) {
    return name.split(".").reduce((node, key) => node[key], this.weights);
  }

  embed(side, id, pos) {
    const { d_model } = this.config;
    const token = this.tell(`${side}.tok_emb`, F.embed(this.weights.tok_emb, id, Math.sqrt(d_model)));
    return this.sum(side, token, this.tell(`${side}.position`, F.sinusoid(pos, d_model)));
  }

  norm(name, x) {
    return this.tell(name, F.layerNorm(this.part(name), x));
  }

  sum(name, x, y) {
    return this.tell(name, F.add(x, y));
  }

  project(name, x) {
    const { k_proj, v_proj } = this.part(name);
    return { keys: x.map((row) => F.linear(k_proj, row)), values: x.map((row) => F.linear(v_proj, row)) };
  }

  attend(name, x, memory) {
    const { q_proj, o_proj } = this.part(name);
    const { out, weights } = F.attend(F.linear(q_proj, x), memory, this.config.n_heads);
    const D = out.length / this.config.n_heads;
    for (const head of this.cut[name] ?? []) out.fill(0, head * D, (head + 1) * D);
    this.tell(`${name}.weights`, weights);
    return this.tell(name, F.linear(o_proj, out));
  }

  feed(layer, x) {
    const normed = this.norm(`${layer}.ffn_residual.norm`, x);
    return this.sum(`${layer}.ffn_residual`, x, this.tell(`${layer}.ffn`, F.feedForward(this.part(`${layer}.ffn`), normed)));
  }

  // The source as the decoder uses it: keys and values for each decoder layer.
  encode(src) {
    let x = src.map((id, pos) => this.embed("src", id, pos));
    for (const n of this.layers) {
      const layer = `encoder.${n}`;
      const normed = x.map((row) => this.norm(`${layer}.attn_residual.norm`, row));
      const memory = this.project(`${layer}.attn`, normed);
      const found = normed.map((row) => this.attend(`${layer}.attn`, row, memory));
      x = x.map((row, t) => this.sum(`${layer}.attn_residual`, row, found[t]));
      x = x.map((row) => this.feed(layer, row));
    }
    x = x.map((row) => this.norm("encoder_norm", row));
    return this.layers.map((n) => this.project(`decoder.${n}.cross_attn`, x));
  }

  start(src) {
    return new F.State(this.config.n_layers, this.encode(src));
  }

  decode(id, pos, caches, memory) {
    let x = this.embed("tgt", id, pos);
    for (const n of this.layers) {
      const layer = `decoder.${n}`;
      const normed = this.norm(`${layer}.attn_residual.norm`, x);
      const { keys, values } = this.project(`${layer}.attn`, [normed]);
      caches[n].keys.push(...keys);
      caches[n].values.push(...values);
      x = this.sum(`${layer}.attn_residual`, x, this.attend(`${layer}.attn`, normed, caches[n]));
      const asks = this.norm(`${layer}.cross_residual.norm`, x);
      x = this.sum(`${layer}.cross_residual`, x, this.attend(`${layer}.cross_attn`, asks, memory[n]));
      x = this.feed(layer, x);
    }
    return this.tell("lm_head", F.linear(this.weights.lm_head, this.norm("decoder_norm", x)));
  }

  step(ids, state) {
    const logits = ids.map((id, row) => this.decode(id, state.length, state.caches[row], state.memory));
    state.length += 1;
    return logits;
  }

  // The outputs of the parts with matching names, position by position, while the model reads a pair.
  watch(src, tgtIn, wanted) {
    const heard = {};
    this.told = (name, value) => wanted.test(name) && (heard[name] ??= []).push(value);
    const state = this.start(src);
    for (const id of tgtIn) this.step([id], state);
    this.told = () => {};
    return heard;
  }
}

// LLaMA: rotary positions, RMSNorm, a gated feed-forward network, grouped heads. Another set of parts can be passed, for
// example one that also computes gradients.
export class Llama {
  constructor(weights, config, parts = F) {
    this.weights = weights;
    this.config = config;
    this.parts = parts;
  }

  start() {
    return new F.State(this.config.n_layers);
  }

  // The input of the first block, and the output of each block.
  heights(id, pos, caches) {
    const { n_layers, n_heads, n_kv_heads, d_model, rope_base, eps } = this.config;
    const [D, parts] = [d_model / n_heads, this.parts];
    const found = [parts.embed(this.weights.tok_emb, id)];
    for (let n = 0; n < n_layers; n++) {
      const { attn, ffn, attn_residual, ffn_residual } = this.weights.layers[n];
      const normed = parts.rmsNorm(attn_residual.norm, found[n], eps);
      caches[n].keys.push(parts.rotate(parts.linear(attn.k_proj, normed), pos, D, rope_base));
      caches[n].values.push(parts.linear(attn.v_proj, normed));
      const q = parts.rotate(parts.linear(attn.q_proj, normed), pos, D, rope_base);
      const x = parts.add(found[n], parts.linear(attn.o_proj, parts.attend(q, caches[n], n_heads, n_kv_heads ?? n_heads).out));
      found.push(parts.add(x, parts.gatedFeedForward(ffn, parts.rmsNorm(ffn_residual.norm, x, eps))));
    }
    return found;
  }

  // The logits read from the residual stream at any depth.
  read(x) {
    return this.parts.linear(this.weights.lm_head, this.parts.rmsNorm(this.weights.final_norm, x, this.config.eps));
  }

  step(ids, state) {
    state.heights = ids.map((id, row) => this.heights(id, state.length, state.caches[row]));
    state.length += 1;
    return state.heights.map((found) => this.read(found.at(-1)));
  }
}

export const MODELS = { transformer: Transformer, llama: Llama };
