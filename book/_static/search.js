// The search, on the page of results and in the field that Ctrl+K opens. Pagefind finds the pages, and this script shows
// them. The index is loaded with the first query.
{
  const LARGE = document.querySelector(".search-page");
  const SHOWN = LARGE ? 20 : 8;
  const RANKING = { metaWeights: { words: 20, title: 10, kind: 0, number: 0 } };
  const base = new URL("../", document.currentScript.src);

  // words: the words to which typos are corrected; names: the names of the package, each with its address in the reference
  let loaded;
  const load = () => (loaded ??= (async () => {
    const [pagefind, known] = await Promise.all([
      import(new URL("pagefind/pagefind.js", base)),
      fetch(new URL("pagefind/words.json", base)).then((answer) => answer.json()),
    ]);
    await pagefind.options({ ranking: RANKING, excerptLength: LARGE ? 40 : 16 });
    return { pagefind, ...known };
  })());

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
    add(item, "p").innerHTML = best?.excerpt ?? excerpt; // escaped by Pagefind, with <mark> around the matches
    return item;
  };
  const showName = ([name, place]) => {
    const item = document.createElement("li");
    add(item, "a", name, { href: new URL(place, base) });
    add(item, "span", "API", { className: "search-kind" });
    return item;
  };
  // names of the package that begin with the query, the shortest first
  const named = (query, names) => {
    const said = query.trim().toLowerCase();
    if (!/^\w{4,}$/.test(said)) return [];
    const found = Object.entries(names).filter(([name]) => name.toLowerCase().startsWith(said) && (name.length === said.length || /[A-Z_]/.test(query)));
    return found.sort(([a], [b]) => a.length - b.length).slice(0, 3);
  };

  // Pagefind shortens an unknown word until something matches; at least half of the word must be on the page
  const known = (query) => ({ raw_content: text, meta }) => {
    const all = `${text} ${meta.title} ${meta.words}`.toLowerCase();
    return query.toLowerCase().split(/[\s-]+/).every((word) => all.includes(word.slice(0, Math.ceil(word.length / 2))));
  };

  // pages that list the query among their words come first
  const lists = (query) => ({ meta }) => (meta.words ?? "").toLowerCase().split(" · ").includes(query.toLowerCase());

  // the words that every question contains are left out
  const ASKING = new Set("a an and are between can difference do does explain for from get go how i in is it mean means me my not of on or should the this to understand versus vs want what when where which who why with work works you".split(" "));
  const asked = (query) => query.toLowerCase().replace(/[?!]/g, "").split(/\s+/).filter(Boolean);
  const meant = (query) => {
    const words = asked(query).filter((word) => !ASKING.has(word));
    return words.length ? words.join(" ") : query;
  };

  // how many letters were added, left out, replaced or swapped
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

  // the page contains every word as it was typed
  const says = (query) => ({ raw_content: text, meta }) => {
    const all = `${text} ${meta.title} ${meta.words}`.toLowerCase();
    return query.toLowerCase().split(/\s+/).every((word) => all.includes(word));
  };

  const start = () => {
    const field = document.querySelector(LARGE ? ".search-page input[name=q]" : "dialog input[name=q]");
    const make = (tag, more) => Object.assign(document.createElement(tag), more);
    const said = document.getElementById("search-count") ?? make("p", { id: "search-count" });
    const list = document.getElementById("search-results") ?? make("ol", { id: "search-results" });
    if (!LARGE) {
      said.setAttribute("role", "status");
      field.form.after(said, list);
    }
    const search = async () => {
      const query = field.value.trim();
      if (!query) return list.replaceChildren(), (said.textContent = "");
      const late = setTimeout(() => (said.textContent = "Searching …"), 150);
      try {
        const { pagefind, words, names } = await load();
        const look = async (said) => {
          const { results } = await pagefind.search(said);
          const pages = await Promise.all(results.slice(0, SHOWN).map((one) => one.data()));
          return { results, found: pages.filter(known(said)) };
        };
        const plain = meant(query);
        let { results, found } = await look(plain);
        let better = asked(plain).map((word) => corrected(word, words)).join(" ");
        if (better !== plain && !found.some(says(plain))) {
          const other = await look(better);
          if (other.found.length) ({ results, found } = other);
          else better = "";
        } else better = "";
        const several = plain.split(" ");
        if (!found.length && several.length > 1) { // leave out one word, so that as many pages as possible are found
          const fewer = several.map((_, i) => several.toSpliced(i, 1).join(" "));
          const tried = await Promise.all(fewer.map(look));
          const best = tried.reduce((a, b) => (b.found.length > a.found.length ? b : a));
          if (best.found.length) {
            ({ results, found } = best);
            better = fewer[tried.indexOf(best)];
          }
        }
        if (query !== field.value.trim()) return; // the reader has typed on
        const isMeant = lists(better || plain);
        const ours = named(query, names).map(showName);
        const first = found.filter(isMeant);
        list.replaceChildren(...first.map(show), ...ours, ...found.filter((page) => !isMeant(page)).map(show));
        const count = `${results.length} page${results.length > 1 ? "s" : ""}`;
        const part = results.length > SHOWN ? `, of which the first ${SHOWN} are shown` : "";
        const instead = better && found.length ? ` for “${better}”` : "";
        said.textContent = found.length || ours.length ? count + instead + part : `Nothing found for “${query}”. Try another word, in English or Chinese.`;
      } catch (error) {
        loaded = undefined;
        said.textContent = location.protocol === "file:"
          ? "Browsers don’t let a page load the index if it was opened as a file. Run “make serve” and open the address that it prints."
          : `The index did not load: ${error.message}. Try again.`;
      } finally {
        clearTimeout(late);
      }
      document.documentElement.dataset.searched = query;
    };
    field.addEventListener("input", search);
    // the arrow keys lead from the field to the results, and from one result to the next
    field.closest("dialog, article").addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      const stops = [field, ...list.querySelectorAll("li > a:first-child")];
      const at = stops.indexOf(document.activeElement);
      if (at < 0) return;
      event.preventDefault();
      stops[Math.min(Math.max(at + step, 0), stops.length - 1)].focus();
    });
    if (LARGE) {
      field.value = new URLSearchParams(location.search).get("q") ?? "";
      field.form.addEventListener("submit", (event) => {
        event.preventDefault();
        history.replaceState(null, "", `?q=${encodeURIComponent(field.value)}`);
        search();
      });
      field.focus();
    }
    search();
  };
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", start) : start();
}
