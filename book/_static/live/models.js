// The two shipped models, composed of the parts. Names of weights are those of the package.
// Both have what decoding needs: start(src) -> state, step(ids, state) -> logits of each row.

import * as F from "./layers.js";

// The encoder–decoder of 2017, with the norm before each sublayer.
export class Transformer {
  constructor(weights, config) {
    if (config.residual !== "pre") throw new Error(`the wiring ${config.residual} is not known here`);
    this.weights = weights;
    this.config = config;
  }

  embed(id, pos) {
    const { d_model } = this.config;
    return F.add(F.embed(this.weights.tok_emb, id, Math.sqrt(d_model)), F.sinusoid(pos, d_model));
  }

  project(part, x) {
    return { keys: x.map((row) => F.linear(part.k_proj, row)), values: x.map((row) => F.linear(part.v_proj, row)) };
  }

  attend(part, x, memory, seen) {
    const { out, weights } = F.attend(F.linear(part.q_proj, x), memory, this.config.n_heads);
    seen?.push(weights);
    return F.linear(part.o_proj, out);
  }

  // The source as the decoder sees it: keys and values for each decoder layer.
  encode(src) {
    let x = src.map((id, pos) => this.embed(id, pos));
    for (let n = 0; n < this.config.n_layers; n++) {
      const layer = this.weights.encoder[n];
      const normed = x.map((row) => F.layerNorm(layer.attn_residual.norm, row));
      const memory = this.project(layer.attn, normed);
      x = x.map((row, t) => F.add(row, this.attend(layer.attn, normed[t], memory)));
      x = x.map((row) => F.add(row, F.feedForward(layer.ffn, F.layerNorm(layer.ffn_residual.norm, row))));
    }
    x = x.map((row) => F.layerNorm(this.weights.encoder_norm, row));
    return Object.values(this.weights.decoder).map((layer) => this.project(layer.cross_attn, x));
  }

  start(src) {
    return new F.State(this.config.n_layers, this.encode(src));
  }

  // `seen`, where given, gets the cross-attention weights of each layer: heads, then source positions.
  decode(id, pos, caches, memory, seen) {
    let x = this.embed(id, pos);
    for (let n = 0; n < this.config.n_layers; n++) {
      const layer = this.weights.decoder[n];
      const normed = F.layerNorm(layer.attn_residual.norm, x);
      caches[n].keys.push(F.linear(layer.attn.k_proj, normed));
      caches[n].values.push(F.linear(layer.attn.v_proj, normed));
      x = F.add(x, this.attend(layer.attn, normed, caches[n]));
      x = F.add(x, this.attend(layer.cross_attn, F.layerNorm(layer.cross_residual.norm, x), memory[n], seen));
      x = F.add(x, F.feedForward(layer.ffn, F.layerNorm(layer.ffn_residual.norm, x)));
    }
    return F.linear(this.weights.lm_head, F.layerNorm(this.weights.decoder_norm, x));
  }

  step(ids, state) {
    const logits = ids.map((id, row) => this.decode(id, state.length, state.caches[row], state.memory));
    state.length += 1;
    return logits;
  }

  // Where the decoder looks while it writes: weights[layer][head][t][s], for the inputs `tgtIn`.
  crossAttention(src, tgtIn) {
    const state = this.start(src);
    const steps = tgtIn.map((id, pos) => {
      const seen = [];
      this.decode(id, pos, state.caches[0], state.memory, seen);
      return seen;
    });
    const { n_layers, n_heads } = this.config;
    const range = (n) => [...Array(n).keys()];
    return range(n_layers).map((layer) => range(n_heads).map((head) => steps.map((seen) => [...seen[layer][head]])));
  }
}

// LLaMA: rotary positions, RMSNorm, gated feed-forward, grouped heads.
export class Llama {
  constructor(weights, config) {
    this.weights = weights;
    this.config = config;
  }

  start() {
    return new F.State(this.config.n_layers);
  }

  // What the first block reads, and what stands behind each block.
  heights(id, pos, caches) {
    const { n_layers, n_heads, n_kv_heads, d_model, rope_base, eps } = this.config;
    const D = d_model / n_heads;
    const found = [F.embed(this.weights.tok_emb, id)];
    for (let n = 0; n < n_layers; n++) {
      const { attn, ffn, attn_residual, ffn_residual } = this.weights.layers[n];
      const normed = F.rmsNorm(attn_residual.norm, found[n], eps);
      caches[n].keys.push(F.rotate(F.linear(attn.k_proj, normed), pos, D, rope_base));
      caches[n].values.push(F.linear(attn.v_proj, normed));
      const q = F.rotate(F.linear(attn.q_proj, normed), pos, D, rope_base);
      const x = F.add(found[n], F.linear(attn.o_proj, F.attend(q, caches[n], n_heads, n_kv_heads).out));
      found.push(F.add(x, F.gatedFeedForward(ffn, F.rmsNorm(ffn_residual.norm, x, eps))));
    }
    return found;
  }

  // Logits, read at any height.
  read(x) {
    return F.linear(this.weights.lm_head, F.rmsNorm(this.weights.final_norm, x, this.config.eps));
  }

  step(ids, state) {
    state.heights = ids.map((id, row) => this.heights(id, state.length, state.caches[row]));
    state.length += 1;
    return state.heights.map((found) => this.read(found.at(-1)));
  }
}

export const MODELS = { transformer: Transformer, llama: Llama };
