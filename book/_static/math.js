// Draws the formulas of a page: spans and blocks of class math that hold \( … \) or \[ … \].
{
  const draw = (place) => {
    const source = [...place.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
    const text = source.map((node) => node.data).join("").trim();
    const drawn = document.createElement("span");
    katex.render(text.slice(2, -2), drawn, { displayMode: place.tagName === "DIV", throwOnError: false });
    source.forEach((node) => node.remove()); // a number of the formula stays
    place.append(drawn);
  };
  document.querySelectorAll(".bd-article .math, .bd-toc .math").forEach(draw);
  performance.mark("formulas");
  document.documentElement.dataset.formulas = "ready";
  document.dispatchEvent(new Event("formulas")); // page.js looks at their widths
}
