// Joins the articles of the site into one page to print. Runs in a page of the site, with `[pages, lines, base, shut]`.
// Folds whose bar begins with a word of `shut` are left out; the others are open.
async ([pages, [title, ...about], base, shut]) => {
  const make = (tag, more = {}, ...inside) => {
    const made = Object.assign(document.createElement(tag), more);
    made.append(...inside);
    return made;
  };
  const places = new Set(pages.map(({ path }) => path));
  const anchor = (path, label = "") => `${path.replace(/\.html$/, "")}--${label}`;

  const read = async ({ path }) => {
    const home = new URL(path, location.origin);
    const text = await (await fetch(home)).text();
    const article = new DOMParser().parseFromString(text, "text/html").querySelector("article.bd-article");
    if (!article) throw new Error(`${path} has no article; build the book again: make book`);
    article.id = anchor(path);
    for (const gone of article.querySelectorAll("script, button, .headerlink")) gone.remove();
    for (const fold of article.querySelectorAll("details")) {
      const bar = fold.querySelector("summary").textContent.trim();
      if (shut.some((word) => bar.startsWith(word))) fold.remove();
      else fold.open = true;
    }
    for (const part of article.querySelectorAll("section")) if (part.children.length === 1) part.remove();
    for (const it of article.querySelectorAll("*")) {
      for (const name of ["hidden", "loading"]) it.removeAttribute(name);
      if (it.id) it.id = anchor(path, it.id);
      for (const { name, value } of it.attributes) {
        if (value.includes("url(#")) it.setAttribute(name, value.replaceAll("url(#", `url(#${anchor(path)}`));
      }
      if (it.hasAttribute("src")) it.setAttribute("src", new URL(it.getAttribute("src"), home));
      if (!it.hasAttribute("href")) continue;
      const to = new URL(it.getAttribute("href"), home);
      const there = to.pathname.slice(1);
      if (to.origin === home.origin) it.setAttribute("href", places.has(there) ? `#${anchor(there, decodeURIComponent(to.hash.slice(1)))}` : `${base}/${there}${to.hash}`);
    }
    return article;
  };

  const articles = [];
  for (const page of pages) articles.push(await read(page));
  const cited = ({ id }) => articles.some((article) => article.querySelector(`[href="#${id}"]`));
  if (shut.length) for (const source of articles.at(-1).querySelectorAll(".citation")) if (!cited(source)) source.remove();
  const entries = articles.flatMap((article, i) => {
    const link = make("a", { href: `#${article.id}` }, article.querySelector("h1").textContent.trim());
    const entry = make("p", { className: "entry" }, link, make("span", { className: "place" }));
    return pages[i].part === pages[i - 1]?.part ? [entry] : [make("p", { className: "part" }, pages[i].part), entry];
  });
  const front = make("section", { className: "title-page" }, make("h1", {}, title), ...about.map((line) => make("p", {}, line)));
  const contents = make("nav", { className: "book-contents" }, make("h1", {}, "Contents"), ...entries);
  const whole = make("div", { className: "bd-content" }, front, contents, ...articles);
  document.body.className = "";
  document.body.replaceChildren(whole);
  await Promise.all([document.fonts.ready, ...[...document.images].map((image) => image.decode().catch(() => {}))]);

  // what is wider or taller than the paper is made smaller
  const todo = [];
  for (const box of document.querySelectorAll(".bd-article :is(table, .katex-display, img, svg[viewBox], .text_html > *)")) {
    if (box.parentElement.closest("table, svg")) continue;
    const { width, height } = box.getBoundingClientRect();
    const room = (box.parentElement.clientWidth || whole.clientWidth) / Math.max(box.scrollWidth || 0, width);
    const scale = Math.min(room, box.matches("img, svg") ? 480 / (height || 1) : 1);
    if (scale < 0.995) todo.push([box, 0.99 * scale]);
  }
  for (const [box, scale] of todo) box.style.zoom = scale;
  return articles.map((article) => article.querySelector("h1").textContent.trim());
};
