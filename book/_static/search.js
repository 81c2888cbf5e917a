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

  // a page that lists the query among its words comes first
  const lists = (query) => ({ meta }) => (meta.words ?? "").toLowerCase().split(" · ").includes(query.toLowerCase());

  // a question is asked without the words that every question has
  const ASKING = new Set("a an and are can do does for from how i in is it me my of on or the to what when where which who why with you".split(" "));
  const asked = (query) => query.toLowerCase().replace(/[?!]/g, "").split(/\s+/).filter(Boolean);
  const meant = (query) => {
    const words = asked(query).filter((word) => !ASKING.has(word));
    return words.length ? words.join(" ") : query;
  };

  // how many letters were added, left out, exchanged or turned round
  const slips = (a, b) => {
    const rows = Array.from({ length: a.length + 1 }, (_, i) => [i]);
    for (let j = 0; j <= b.length; j++) rows[0][j] = j;
    for (let i = 1; i <= a.length; i++)
      for (let j = 1; j <= b.length; j++) {
        const other = a[i - 1] === b[j - 1] ? 0 : 1;
        rows[i][j] = Math.min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + other);
        if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) rows[i][j] = Math.min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    return rows[a.length][b.length];
  };
  const corrected = (word, words) => {
    if (word.length < 5 || words.includes(word)) return word;
    const near = words.filter((known) => Math.abs(known.length - word.length) < 3).map((known) => [slips(word, known), known]);
    const [count, best] = near.sort(([a], [b]) => a - b)[0] ?? [9];
    return count <= (word.length < 8 ? 1 : 2) ? best : word;
  };

  // every word of it stands there as it was typed
  const says = (query) => ({ raw_content: text, meta }) => {
    const all = `${text} ${meta.title} ${meta.words}`.toLowerCase();
    return query.toLowerCase().split(/\s+/).every((word) => all.includes(word));
  };

  const start = () => {
    const words = JSON.parse(document.getElementById("search-words").textContent);
    const field = document.querySelector(".search-page input[name=q]");
    const [said, list] = ["search-count", "search-results"].map((id) => document.getElementById(id));
    const search = async () => {
      const query = field.value.trim();
      if (!query) return list.replaceChildren(), (said.textContent = "");
      try {
        const pagefind = await load();
        const look = async (said) => {
          const { results } = await pagefind.search(said);
          const pages = await Promise.all(results.slice(0, SHOWN).map((one) => one.data()));
          return { results, found: pages.filter(known(said)) };
        };
        let { results, found } = await look(meant(query));
        let better = asked(meant(query)).map((word) => corrected(word, words)).join(" ");
        if (better !== meant(query) && !found.some(says(meant(query)))) {
          const other = await look(better);
          if (other.found.length) ({ results, found } = other);
          else better = "";
        } else better = "";
        if (query !== field.value.trim()) return; // typed on
        const isMeant = lists(better || meant(query));
        list.replaceChildren(...found.toSorted((a, b) => isMeant(b) - isMeant(a)).map(show));
        const count = `${results.length} page${results.length > 1 ? "s" : ""}`;
        const part = results.length > SHOWN ? `, the first ${SHOWN} of them here` : "";
        const instead = better && found.length ? ` for “${better}”` : "";
        said.textContent = found.length ? count + instead + part : `Nothing found for “${query}”. Try another word, or one in Chinese.`;
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
