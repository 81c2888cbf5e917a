// Gates and values, number by number: the formulas from chapter 5.2.

const sigmoid = (x) => 1 / (1 + Math.exp(-x));

export const GATES = {
  ReLU: (x) => Math.max(0, x),
  SiLU: (x) => x * sigmoid(x),
  sigmoid,
};

// Each gate lets a part of its value through.
export const gated = (name, gates, values) => gates.map((gate, unit) => GATES[name](gate) * values[unit]);
