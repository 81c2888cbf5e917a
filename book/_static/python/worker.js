// Runs Python outside the page's own thread. Messages in: {n, id, text}, or {n, step, text} to train a file.
// Messages out: {n, started | done | verdict | trained | error}.

import { loadPyodide } from "../pyodide/pyodide.mjs";

export let python; // started by the first message

async function fetched(name) {
  const answer = await fetch(new URL(name, import.meta.url), { cache: "no-cache" }); // so that all files are of the same edition
  if (!answer.ok) throw new Error(`${name} couldn’t be fetched (status ${answer.status})`);
  return answer;
}

// The archive, if its SHA-256 is the one in about.json. Browsers can compute it on https pages and on pages from this
// computer.
async function archive() {
  const [{ sha256 }, body] = [await (await fetched("about.json")).json(), await (await fetched("archive.zip")).arrayBuffer()];
  const digest = await globalThis.crypto.subtle?.digest("SHA-256", body);
  const found = digest && [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  if (digest && found !== sha256) throw new Error("archive.zip is not the file that belongs to this edition");
  return body;
}

async function start() {
  const body = await archive();
  const packages = JSON.stringify({ info: { abi_version: "2026_0" }, packages: {} }); // none but Python's own
  const folder = new URL("../pyodide/", import.meta.url).href;
  const started = await loadPyodide({ indexURL: folder, packageBaseUrl: folder, lockFileContents: packages });
  started.unpackArchive(body, "zip", { extractDir: "/package" });
  started.runPython("import sys; sys.path.insert(0, '/package')");
  started.pyimport("transformer_lit.page.run").use({ dots });
  return started;

  // All products of the m rows at a with the n rows at b, k numbers each: addresses in Python's own memory.
  function dots(a, b, out, m, k, n) {
    const memory = started._module.HEAPF64;
    let [row, at] = [a >> 3, out >> 3];
    for (let i = 0; i < m; i++, row += k)
      for (let j = 0, column = b >> 3; j < n; j++, column += k) {
        let sum = 0;
        for (let p = 0; p < k; p++) sum += memory[row + p] * memory[column + p];
        memory[at++] = sum;
      }
  }
}

onmessage = async ({ data: { n, id, step, text } }) => {
  try {
    const page = (await (python ??= start())).pyimport("transformer_lit.page.run");
    postMessage({ n, started: true });
    if (step) postMessage({ n, trained: JSON.parse(page.train(step, text, (done) => postMessage({ n, done }))) });
    else postMessage({ n, verdict: JSON.parse(page.run(id, text)) });
  } catch (error) {
    const lines = String(error.message).trim().split("\n"); // Python says what happened in the last one
    postMessage({ n, error: lines.at(error.name === "PythonError" ? -1 : 0).slice(0, 300) });
  }
};
