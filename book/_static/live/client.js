// A model in a worker of its own, for the page.

export class Model {
  constructor() {
    this.waiting = new Map();
    this.asked = 0;
    this.worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    this.worker.addEventListener("message", ({ data: { id, ...data } }) => this.hear(id, data));
    this.worker.addEventListener("error", () => {
      for (const { reject } of this.waiting.values()) reject(new Error("the model's worker could not start"));
    });
  }

  hear(id, data) {
    const { resolve, reject, told } = this.waiting.get(id);
    if ("error" in data) reject(new Error(data.error));
    else if ("result" in data) resolve(data.result);
    else return told(data);
    this.waiting.delete(id);
  }

  // The answer to one of the worker's tasks; `told` hears of it in parts.
  ask(task, message = {}, told = () => {}) {
    const id = (this.asked += 1);
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, told });
      this.worker.postMessage({ ...message, id, ask: task });
    });
  }

  // The answer to the newest question alone; an earlier one gets undefined, whatever becomes of it.
  async newest(...question) {
    const mine = (this.last = {});
    try {
      const answer = await this.ask(...question);
      if (mine === this.last) return answer;
    } catch (error) {
      if (mine === this.last) throw error;
    }
  }

  close() {
    this.worker.terminate();
  }
}

// A loaded model; `say` is told how far it is. What failed can be tried again.
export async function openModel(name, say) {
  const model = new Model();
  try {
    const about = await model.ask("load", { name }, ({ progress }) => say(`Loading: ${Math.round(100 * progress)} %`));
    return Object.assign(model, about);
  } catch (error) {
    model.close();
    throw error;
  }
}
