// Draws formulas as they come: a line of JSON {text, display} in, a line of JSON {html} or {error} out.
const katex = require("./katex.min.js");

require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { text, display } = JSON.parse(line);
  try {
    const html = katex.renderToString(text, { displayMode: display, strict: "ignore", throwOnError: true });
    console.log(JSON.stringify({ html }));
  } catch (error) {
    console.log(JSON.stringify({ error: error.message }));
  }
});
