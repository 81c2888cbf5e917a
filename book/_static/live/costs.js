// What a LLaMA-style decoder costs: its number of parameters, the bytes of its cache, and the operations for a token.

// The number of all weights: the embedding table, four projections, the three matrices of SwiGLU, the norms, and the
// output layer.
export function parameters({ V, C, layers, H, K, D, F, tied }) {
  const layer = 2 * C * H * D + 2 * C * K * D + 3 * C * F + 2 * C;
  return (tied ? 1 : 2) * V * C + layers * layer + C;
}

// The bytes of the keys and values of `length` positions in `batch` texts.
export const cacheBytes = ({ layers, K, D }, length, batch, bytes) => 2 * layers * batch * K * length * D * bytes;

// The bytes that a step reads: all keys and values, and each weight once, except that it reads only a few rows of the
// embedding table.
export const stepBytes = (model, length, batch, weight, held) =>
  (parameters(model) - (model.tied ? 0 : model.V * model.C)) * weight + cacheBytes(model, length, batch, held);

// The multiplications and additions for one more token that attends to `length` positions, including its own.
export function stepFlops({ V, C, layers, H, K, D, F }, length) {
  const matrices = layers * (2 * C * H * D + 2 * C * K * D + 3 * C * F) + V * C;
  return 2 * matrices + layers * 4 * length * H * D;
}
