// What a LLaMA-style decoder costs: numbers in it, bytes that it holds, operations for a token.

// Weights in all: the token table, four projections, three matrices of SwiGLU, norms, and the output layer.
export function parameters({ V, C, layers, H, K, D, F, tied }) {
  const layer = 2 * C * H * D + 2 * C * K * D + 3 * C * F + 2 * C;
  return (tied ? 1 : 2) * V * C + layers * layer + C;
}

// Keys and values of `length` positions in `batch` texts.
export const cacheBytes = ({ layers, K, D }, length, batch, bytes) => 2 * layers * batch * K * length * D * bytes;

// What a step reads: each weight once, but of the token table some rows, and all keys and values.
export const stepBytes = (model, length, batch, weight, held) =>
  (parameters(model) - (model.tied ? 0 : model.V * model.C)) * weight + cacheBytes(model, length, batch, held);

// Multiplications and additions for one more token, with `length` positions in sight, itself among them.
export function stepFlops({ V, C, layers, H, K, D, F }, length) {
  const matrices = layers * (2 * C * H * D + 2 * C * K * D + 3 * C * F) + V * C;
  return 2 * matrices + layers * 4 * length * H * D;
}
