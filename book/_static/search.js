// The page of results. Everything is looked for in one file, search.json, which is loaded with the first query.
{
  const WEIGHT = { chapter: 1, appendix: 0.6, page: 0.5, api: 0.35 };
  const LABEL = { chapter: "Chapter", appendix: "Appendix", page: "Page", api: "API" };
  const SHOWN = 20;
  const address = document.currentScript.dataset.index;

  // one form for all spellings: warm-up and Warm up, d_k and dk stay what they are
  const plain = (text) => text.normalize("NFKC").toLowerCase().replace(/[\u2010-\u2015-]/g, " ");
  const words = (text) => plain(text).split(/[^\p{L}\p{M}\p{N}√_+^/=.]+/u).map((word) => word.replace(/^[.+/=]+|[.+/=]+$/g, "")).filter(Boolean);
  const quote = (text) => text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
  const ideographs = (text) => /\p{Script=Han}/u.test(text);

  // at the beginning of a word; a short one must be whole; no such thing as words in Chinese
  const finder = (parts) => {
    const body = parts.map(quote).join("[^\\p{L}\\p{N}]{1,2}");
    if (ideographs(body)) return new RegExp(body, "gu");
    const end = parts.at(-1).length < 4 ? "(?:e?s)?(?![\\p{L}\\p{N}])" : "";
    return new RegExp(`(?<![\\p{L}\\p{N}])${body}${end}`, "gu");
  };
  const count = (pattern, text) => text.match(pattern)?.length ?? 0;

  const prepare = (page) => ({
    ...page,
    plainTitle: plain(page.title),
    plainWords: page.words.map((word) => words(word).join(" ")),
    plainNames: plain(page.names.join(" ")),
    sections: page.sections.map(([heading, anchor, text]) => ({ heading, anchor, text, found: plain(`${heading} ${text}`), plainHeading: plain(heading) })),
  });

  const rank = (pages, query) => {
    const parts = words(query);
    if (!parts.length) return [];
    const whole = finder(parts);
    const each = parts.map((part) => finder([part]));
    const asked = parts.join(" ");
    const rated = pages.map((page) => {
      const text = page.sections.map((section) => section.found).join(" ");
      const everything = [page.plainTitle, page.plainNames, ...page.plainWords, text].join(" ");
      const hits = each.map((pattern) => count(pattern, everything));
      return { page, text, hits };
    });
    const common = each.map((_, i) => rated.filter(({ hits }) => hits[i]).length);
    const most = Math.max(...rated.map(({ hits }) => hits.filter(Boolean).length));
    if (!most) return [];
    const found = rated.filter(({ hits }) => hits.filter(Boolean).length === most);
    for (const one of found) {
      const { page, text, hits } = one;
      const place = page.plainWords.indexOf(asked);
      let score = place < 0 ? 0 : 60;
      if (place < 0 && page.plainWords.some((word) => count(whole, word))) score += 20;
      if (count(whole, page.plainTitle)) score += 40;
      else score += (10 * each.filter((pattern) => count(pattern, page.plainTitle)).length) / parts.length;
      if (page.sections.some((section) => count(whole, section.plainHeading))) score += 10;
      if (count(whole, page.plainNames)) score += 6;
      const exact = count(whole, text);
      score += (12 * exact) / (exact + 4);
      hits.forEach((hit, i) => (score += (4 * Math.log(1 + pages.length / (1 + common[i])) * hit) / (hit + 4)));
      one.score = score * WEIGHT[page.kind];
    }
    return found.sort((a, b) => b.score - a.score).map(({ page }) => ({ page, section: best(page, whole, each), each }));
  };

  // the section that says most of it
  const best = (page, whole, each) => {
    const worth = ({ found, plainHeading }) =>
      20 * count(whole, plainHeading) + Math.min(10, 5 * count(whole, found)) + each.reduce((sum, pattern) => sum + Math.min(3, count(pattern, found)), 0);
    const all = page.sections.map(worth);
    return page.sections[all.indexOf(Math.max(...all))];
  };

  // a stretch of the text around the first hit, with all hits marked
  const excerpt = (section, each) => {
    const shown = document.createElement("p");
    const text = section.text.normalize("NFKC");
    const low = plain(text); // as long as the text: nothing in `plain` but NFKC changes a length
    const first = Math.min(...each.map((pattern) => low.search(pattern)).filter((at) => at >= 0), Infinity);
    const start = first < 80 || first === Infinity ? 0 : text.indexOf(" ", first - 80) + 1;
    const end = Math.min(text.length, start + 240);
    const marks = low.length === text.length ? each.flatMap((pattern) => [...low.matchAll(pattern)].map((hit) => [hit.index, hit.index + hit[0].length])) : [];
    let at = start;
    if (start) shown.append("… ");
    for (const [from, to] of marks.sort(([a], [b]) => a - b)) {
      if (from < at || to > end) continue;
      const mark = document.createElement("mark");
      mark.textContent = text.slice(from, to);
      shown.append(text.slice(at, from), mark);
      at = to;
    }
    shown.append(text.slice(at, end), end < text.length ? " …" : "");
    return shown;
  };

  const show = ({ page, section, each }) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = page.page;
    link.textContent = [page.number, page.title].filter(Boolean).join(" ");
    const about = document.createElement("span");
    about.className = "search-kind";
    about.textContent = LABEL[page.kind];
    item.append(link, " ", about);
    if (!section) return item;
    if (section !== page.sections[0]) {
      const deep = document.createElement("a");
      deep.href = `${page.page}#${section.anchor}`;
      deep.className = "search-section";
      deep.textContent = section.heading;
      item.append(deep);
    }
    item.append(excerpt(section, each));
    return item;
  };

  let loaded;
  const load = () => (loaded ??= fetch(address).then(async (answer) => {
    if (!answer.ok) throw new Error(`the server said ${answer.status}`);
    return (await answer.json()).map(prepare);
  }));

  const start = () => {
    const field = document.querySelector(".search-page input[name=q]");
    const [said, list] = ["search-count", "search-results"].map((id) => document.getElementById(id));
    const search = async () => {
      const query = field.value.trim();
      if (!query) return list.replaceChildren(), (said.textContent = "");
      try {
        const pages = await load();
        if (query !== field.value.trim()) return; // typed on
        const found = rank(pages, query);
        list.replaceChildren(...found.slice(0, SHOWN).map(show));
        const count = `${found.length} page${found.length > 1 ? "s" : ""}`;
        const part = found.length > SHOWN ? `, the first ${SHOWN} of them here` : "";
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
