// Reads the weights that the package ships: one safetensors file, mostly in half precision.

const POWERS = Float64Array.from({ length: 31 }, (_, exponent) => 2 ** (exponent - 15));

// The number that 16 bits represent: the sign, 5 bits of exponent, and 10 bits of fraction.
export function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = (bits & 1023) / 1024;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * POWERS[exponent] * (1 + fraction) : sign * 2 ** -14 * fraction;
}

function halves(bits) {
  const out = new Float32Array(bits.length);
  for (let i = 0; i < out.length; i++) out[i] = half(bits[i]);
  return out;
}

const READERS = {
  F16: (bytes) => halves(new Uint16Array(bytes)),
  F32: (bytes) => new Float32Array(bytes),
};

// The tensors of a file by name, each as {shape, values}. A tensor that is stored once can have several names.
export function readTensors(buffer) {
  const start = 8 + Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, start - 8)));
  const { __metadata__: metadata, ...entries } = header;
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(entries)) {
    if (!(dtype in READERS)) throw new Error(`${name} is stored as ${dtype}, but this page can only read F16 and F32`);
    const [from, to] = data_offsets.map((offset) => start + offset);
    tensors[name] = { shape, values: READERS[dtype](buffer.slice(from, to)) };
  }
  const aliases = Object.entries(JSON.parse(metadata?.aliases ?? "{}"));
  for (const [alias, name] of aliases) tensors[alias] = tensors[name];
  return tensors;
}

// The same tensors as a tree: "encoder.0.attn.q_proj.weight" is at tree.encoder[0].attn.q_proj.weight.
export function asTree(tensors) {
  const tree = {};
  for (const [name, tensor] of Object.entries(tensors)) {
    const path = name.split(".");
    const last = path.pop();
    path.reduce((node, key) => (node[key] ??= {}), tree)[last] = tensor;
  }
  return tree;
}
