// Set the colours that the reader chose, or those of the system, before anything is painted. A later change would be seen.
{
  const { dataset } = document.documentElement;
  const chosen = (what) => localStorage.getItem(what) || "auto";
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  dataset.mode = chosen("mode");
  dataset.theme = dataset.mode === "auto" ? system : chosen("theme");
}
