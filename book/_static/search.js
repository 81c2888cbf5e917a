// The page of results: Pagefind finds, this shows. Its index is loaded with the first query.
{
  const SHOWN = 20;
  const RANKING = { metaWeights: { words: 20, title: 10, kind: 0, number: 0 } };
  const address = new URL(document.currentScript.dataset.index, location.href);

  let loaded;
  const load = () => (loaded ??= import(address).then(async (pagefind) => {
    await pagefind.options({ ranking: RANKING, excerptLength: 40 });
    return pagefind;
  }));

  const add = (parent, tag, said, more = {}) => {
    const made = Object.assign(document.createElement(tag), { textContent: said, ...more });
    parent.append(made, " ");
    return made;
  };
  const show = ({ url, meta, excerpt, sub_results: sections }) => {
    const item = document.createElement("li");
    add(item, "a", [meta.number, meta.title].filter(Boolean).join(" "), { href: url });
    add(item, "span", meta.kind, { className: "search-kind" });
    const [best] = sections.toSorted((a, b) => b.weighted_locations.length - a.weighted_locations.length);
    if (best?.anchor && best !== sections[0]) add(item, "a", best.title, { href: best.url, className: "search-section" });
    add(item, "p").innerHTML = best?.excerpt ?? excerpt; // escaped by Pagefind, with <mark> around hits
    return item;
  };

  // Pagefind shortens a word that it does not know until something fits: half of it must be there
  const known = (query) => ({ raw_content: text, meta }) => {
    const all = `${text} ${meta.title} ${meta.words}`.toLowerCase();
    return query.toLowerCase().split(/[\s-]+/).every((word) => all.includes(word.slice(0, Math.ceil(word.length / 2))));
  };

  const start = () => {
    const field = document.querySelector(".search-page input[name=q]");
    const [said, list] = ["search-count", "search-results"].map((id) => document.getElementById(id));
    const search = async () => {
      const query = field.value.trim();
      if (!query) return list.replaceChildren(), (said.textContent = "");
      try {
        const { results } = await (await load()).search(query);
        const pages = await Promise.all(results.slice(0, SHOWN).map((one) => one.data()));
        if (query !== field.value.trim()) return; // typed on
        const found = pages.filter(known(query));
        list.replaceChildren(...found.map(show));
        const count = `${results.length} page${results.length > 1 ? "s" : ""}`;
        const part = results.length > SHOWN ? `, the first ${SHOWN} of them here` : "";
        said.textContent = found.length ? count + part : `Nothing found for “${query}”. Try another word, or one in Chinese.`;
      } catch (error) {
        loaded = undefined;
        said.textContent = location.protocol === "file:"
          ? "A page opened as a file may not load the index. Run “make serve” and open the address that it prints."
          : `The index did not load: ${error.message}. Try again.`;
      }
      document.documentElement.dataset.searched = query;
    };
    field.value = new URLSearchParams(location.search).get("q") ?? "";
    field.addEventListener("input", search);
    field.form.addEventListener("submit", (event) => {
      event.preventDefault();
      history.replaceState(null, "", `?q=${encodeURIComponent(field.value)}`);
      search();
    });
    field.focus();
    search();
  };
  document.addEventListener("DOMContentLoaded", start);
}
