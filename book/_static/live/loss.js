// The loss of one token with label smoothing and a temperature: the formulas from chapter 7.1.

const logSum = (scores) => {
  const largest = Math.max(...scores);
  return largest + Math.log(scores.reduce((sum, score) => sum + Math.exp(score - largest), 0));
};

// The logits have shape V. Losses are in nats, `floor` is the smallest loss that smoothing allows, and the gradient is
// taken with respect to the logits.
export function tokenLoss(logits, target, smoothing = 0, temperature = 1) {
  const scores = logits.map((logit) => logit / temperature);
  const all = logSum(scores);
  const logP = scores.map((score) => score - all);
  const p = logP.map(Math.exp);
  const q = logits.map((_, v) => smoothing / logits.length + (v === target ? 1 - smoothing : 0));
  return {
    ...{ p, q },
    plain: -logP[target],
    loss: q.reduce((sum, share, v) => sum - share * logP[v], 0),
    floor: q.reduce((sum, share) => sum - (share && share * Math.log(share)), 0),
    gradient: p.map((given, v) => (given - q[v]) / temperature),
  };
}

// The logit that gives token v the probability p while the other logits don't change.
export const logitFor = (logits, v, p, temperature = 1) =>
  temperature * (Math.log(p / (1 - p)) + logSum(logits.filter((_, u) => u !== v).map((logit) => logit / temperature)));
