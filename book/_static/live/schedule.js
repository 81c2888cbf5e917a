// Learning rates: functions of the step, which counts from 1.

// Linear up to `peak` at `warmup` steps, then as 1/√step.
export const inverseSqrt = (peak, warmup) => (step) => peak * Math.min(step / warmup, Math.sqrt(warmup / step));

// The same with the peak of the 2017 paper, which follows from the width of the model.
export const paperSchedule = (dModel, warmup) => inverseSqrt((dModel * warmup) ** -0.5, warmup);

// Linear up to `peak`, then half a cosine down to `final · peak` at `steps`.
export const cosine = (peak, warmup, steps, final) => (step) => {
  const u = Math.min(1, Math.max(0, step - warmup) / Math.max(1, steps - warmup));
  return peak * Math.min(step / warmup, 1) * (final + ((1 - final) * (1 + Math.cos(Math.PI * u))) / 2);
};
