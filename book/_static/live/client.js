// A model for the page, in its own worker.

export class Model {
  constructor() {
    this.waiting = new Map();
    this.asked = 0;
    this.worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    this.worker.addEventListener("message", ({ data: { id, ...data } }) => this.hear(id, data));
    this.worker.addEventListener("error", () => {
      for (const { reject } of this.waiting.values()) reject(new Error("the worker that runs the model could not start"));
    });
  }

  hear(id, data) {
    const { resolve, reject, told } = this.waiting.get(id);
    if ("error" in data) reject(new Error(data.error));
    else if ("result" in data) resolve(data.result);
    else return told(data);
    this.waiting.delete(id);
  }

  // The answer to one of the worker's tasks; `told` is called with its parts as they arrive.
  ask(task, message = {}, told = () => {}) {
    const id = (this.asked += 1);
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, told });
      this.worker.postMessage({ ...message, id, ask: task });
    });
  }

  // The answer to the newest question only. Earlier questions get undefined, even if they fail.
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

// Load a model; `say` shows the progress. After a failure, the reader can try again.
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
