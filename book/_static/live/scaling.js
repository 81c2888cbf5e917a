// The frequencies of RoPE's planes under the scalings of chapter 4.5, and the angles that did not occur in training.

const FAST = { yarn: 32, llama3: 4 }; // a plane with at least so many turns within L keeps its frequency; with fewer than 1, it is interpolated
const clamp = (value) => Math.min(1, Math.max(0, value));

// For each plane, its frequency in training, its turns within L, and its frequency for texts that are s times as long.
export function scaledPlanes(name, { D, base, L, s }) {
  const at = (turns) => ((D / 2) * Math.log(L / (2 * Math.PI * turns))) / Math.log(base); // the plane with so many turns
  const [first, last] = [Math.max(Math.floor(at(FAST.yarn)), 0), Math.min(Math.ceil(at(1)), D - 1)];
  const keep = {
    none: () => 1,
    linear: () => 0,
    yarn: (i) => 1 - clamp((i - first) / (last - first || 0.001)),
    llama3: (_, turns) => clamp((turns - 1) / (FAST.llama3 - 1)),
  }[name];
  return Array.from({ length: D / 2 }, (_, i) => {
    const theta = base ** ((-2 * i) / D);
    const turns = (L * theta) / (2 * Math.PI);
    if (name === "ntk") return { theta, turns, scaled: (base * s ** (D / (D - 2))) ** ((-2 * i) / D) };
    return { theta, turns, scaled: theta * (keep(i, turns) + (1 - keep(i, turns)) / s) };
  });
}

// Over all distances below `length`: the largest gap between an angle and the nearest angle at a distance below L.
export function farthestFromSeen({ theta, scaled }, L, length) {
  const turn = 2 * Math.PI;
  const angles = (count, each) => Float64Array.from({ length: count }, (_, d) => (d * each) % turn).sort();
  const seen = angles(L, theta); // it begins with 0
  let [most, next] = [0, 0];
  for (const angle of angles(length, scaled)) {
    while (next < L && seen[next] < angle) next++;
    const after = (next < L ? seen[next] : turn) - angle;
    most = Math.max(most, Math.min(after, next ? angle - seen[next - 1] : turn));
  }
  return most;
}
