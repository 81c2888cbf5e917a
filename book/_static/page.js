// Fixes for parts of the theme's markup that confuse screen readers, links into collapsed sections, boxes that scroll,
// notes on links, arrow keys, and the code that starts the widgets.
{
  const each = (selector, act) => document.querySelectorAll(selector).forEach(act);

  // the name in the fragment of an address, even if someone has typed a bare %
  const named = (hash) => {
    try {
      return decodeURIComponent(hash.slice(1));
    } catch {
      return hash.slice(1);
    }
  };

  const repair = () => {
    // labels that differ from the text on the button ("Show code cell source", "Search Ctrl+K")
    each("details > summary[aria-label]", (summary) => summary.removeAttribute("aria-label"));
    each(".search-button-field[aria-label]", (button) => button.removeAttribute("aria-label"));
    // icons don't need titles if their button has a label
    each(".theme-switch-button [title]", (icon) => icon.removeAttribute("title"));
    // a list contains list items, and the logo belongs in a landmark
    each(".citation-list > .citation", (entry) => entry.setAttribute("role", "listitem"));
    each(".bd-sidebar-primary .navbar-brand.logo", (logo) => {
      logo.parentElement.setAttribute("role", "region");
      logo.parentElement.setAttribute("aria-label", "Book");
    });
  };

  // the search is loaded when its field is opened; it then shows results while the reader types
  const { src } = document.currentScript;
  const open = document.getElementById("pst-search-dialog");
  if (open && !document.querySelector(".search-page"))
    open.addEventListener("focusin", () => document.body.append(Object.assign(document.createElement("script"), { src: new URL("search.js", src) })), { once: true });

  // a link to collapsed content opens every fold around it
  const unfold = () => {
    const target = document.getElementById(named(location.hash));
    let fold = target?.closest("details");
    if (!fold) return;
    for (; fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", unfold);
  document.addEventListener("DOMContentLoaded", unfold);

  // a widget is a module in widgets/ that fills its place; a widget that loads a lot waits for its button
  const fill = (root) => {
    const note = document.createElement("p");
    note.className = "widget-note";
    note.setAttribute("role", "status");
    const say = (text) => (note.textContent = text);
    const open = async () => {
      if (location.protocol === "file:") {
        say("Browsers don’t let a page load this if it was opened as a file. Run “make serve” and open the address that it prints.");
        return;
      }
      try {
        const { mount } = await import(`./widgets/${root.dataset.widget}.js`);
        await mount(root, say);
      } catch (error) {
        say(`This did not load: ${error.message}. Try again.`);
      }
    };
    root.prepend(note);
    if (!root.dataset.ask) return open();
    for (const told of root.querySelectorAll(":scope > p")) // the reader is on the site already, so the sentence for notebooks is shortened
      told.innerHTML = told.innerHTML.replace("On the book’s site, with JavaScript, you can", "Load it, and you can");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "widget-button";
    button.textContent = root.dataset.ask;
    button.addEventListener("click", async () => {
      if (root.hasAttribute("aria-busy")) return;
      root.setAttribute("aria-busy", "true");
      button.setAttribute("aria-disabled", "true"); // not `disabled`, which would lose the focus
      say("Loading …");
      await open();
      if (document.activeElement === document.body) root.querySelector("input, select, button")?.focus();
      root.removeAttribute("aria-busy");
      button.removeAttribute("aria-disabled");
    });
    note.before(button);
  };
  document.addEventListener("DOMContentLoaded", () => each("[data-widget]", fill));

  document.addEventListener("DOMContentLoaded", repair);

  // ---- boxes that scroll ----
  // All sizes are read before any class is written, because reading after a write would force another layout.
  // The content of a closed fold is skipped, because reading its size would lay it out.
  const SCROLLS = ".bd-article :is(figure, .cell_output:not(:has(figure)), .drawing, p, .katex-display, .pst-scrollable-table-container, .text_html, .family-parts)";
  const inside = (roots, selector) =>
    roots.flatMap((root) => [...root.querySelectorAll(selector)]).filter((it) => !it.closest("details:not([open])"));

  // a box that scrolls can be reached with the keyboard, and it fades where there is more to see
  const measure = (box) => {
    const [all, seen] = [box.scrollWidth, box.clientWidth];
    return { wide: all > seen, more: box.scrollLeft + seen < all - 1 };
  };
  const mark = (box, { wide, more }) => {
    box.classList.toggle("scrolls", wide);
    box.classList.toggle("more-right", wide && more);
    if (wide && !box.hasAttribute("tabindex")) box.tabIndex = 0;
    if (!wide || box.dataset.cued) return;
    box.dataset.cued = "true";
    box.addEventListener("scroll", () => mark(box, measure(box)), { passive: true });
  };
  const cueAll = (...roots) => {
    const boxes = inside(roots, SCROLLS);
    const sizes = boxes.map(measure);
    boxes.forEach((box, i) => mark(box, sizes[i]));
  };
  const start = () => {
    let waiting;
    window.addEventListener("resize", () => {
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(() => cueAll(document));
    });
    // the content of a fold gets its width when it opens; folds that open at the same time are measured together
    const opened = [];
    const cueOpened = () => cueAll(...opened.splice(0));
    const unfold = ({ target }) => target.open && opened.push(target) === 1 && setTimeout(cueOpened);
    document.addEventListener("toggle", unfold, true);
    document.fonts.ready.then(() => cueAll(document)); // only now do formulas have their width
  };
  window.addEventListener("load", start);

  // ---- the note on a link to a term, a paper, a formula or a figure, for the pointer and for the keyboard ----
  const SHOWN = "[href*='glossary.html#'], [href*='#equation-'], [href*='#fig-']"; // links whose target itself is shown
  const NOTED = `.bd-article a:is([href*='bibliography.html#'], ${SHOWN}):not(.headerlink)`;
  const pages = new Map(); // address -> its document, which is fetched once
  const pageOf = ({ href, pathname }) => {
    if (pathname === location.pathname) return document;
    const address = href.split("#")[0];
    if (!pages.has(address)) {
      const parse = (text) => new DOMParser().parseFromString(text, "text/html");
      pages.set(address, fetch(address).then((answer) => answer.text()).then(parse));
    }
    return pages.get(address);
  };
  const recall = async (link) => {
    const page = await pageOf(link);
    const found = page.getElementById(named(link.hash));
    let thing = found?.matches("figure") ? found.querySelector("figcaption") : found;
    while (thing?.matches("dt")) thing = thing.nextElementSibling; // what a term means
    const copy = thing?.cloneNode(true);
    copy?.removeAttribute("id");
    for (const part of copy?.querySelectorAll("[id], .headerlink") ?? []) {
      if (part.matches(".headerlink")) part.remove();
      else part.removeAttribute("id");
    }
    return copy;
  };
  let note;
  const hideNote = () => {
    note?.remove();
    note = undefined;
  };
  const place = (link) => {
    const [at, size] = [link.getBoundingClientRect(), note.getBoundingClientRect()];
    note.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - size.width - 8))}px`;
    const below = at.bottom + 6;
    note.style.top = `${below + size.height > innerHeight ? Math.max(0, at.top - size.height - 6) : below}px`;
  };
  const showNote = async ({ target }) => {
    const link = target.closest?.(NOTED);
    if (!link) return;
    link.dataset.note ??= link.title;
    link.removeAttribute("title"); // otherwise the browser would show its own note as well
    hideNote();
    const mine = (note = document.createElement("div"));
    if (link.matches(SHOWN)) {
      const thing = await recall(link).catch(() => {}); // a page opened as a file can't fetch another one
      if (!thing || note !== mine) return;
      note.append(thing);
    } else if (link.dataset.note) note.textContent = link.dataset.note;
    else return;
    note.className = "link-note";
    note.id = "link-note";
    note.setAttribute("role", "tooltip");
    link.setAttribute("aria-describedby", note.id);
    document.body.append(note);
    place(link);
  };
  for (const event of ["mouseover", "focusin"]) document.addEventListener(event, showNote);
  for (const event of ["mouseout", "focusout"]) document.addEventListener(event, ({ target }) => target.closest?.(NOTED) && hideNote());
  // on a touch screen, the first tap shows the note and the second one follows the link
  let tapped;
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.(NOTED);
    const first = link !== tapped && matchMedia("(hover: none)").matches;
    if (first && (link?.dataset.note || link?.matches(SHOWN))) event.preventDefault();
    if (!link) hideNote();
    tapped = link;
  });
  const leave = () => (hideNote(), (tapped = undefined));
  document.addEventListener("scroll", leave, { passive: true });

  // ---- print on white, even if the screen is dark ----
  const { dataset } = document.documentElement;
  let onScreen;
  window.addEventListener("beforeprint", () => ([onScreen, dataset.theme] = [dataset.theme, "light"]));
  window.addEventListener("afterprint", () => (dataset.theme = onScreen));

  // ---- a card or dialog over the page is closed by a click next to it, by Escape, and by following one of its links ----
  const closeCard = ({ target, key }) => {
    const card = document.querySelector(".notation-card[open]");
    if (card && (key === "Escape" || (!key && !card.contains(target)))) card.open = false;
    if (!key && target.closest?.("a[href^='#']")) target.closest("dialog[open]")?.close();
  };
  for (const event of ["click", "keydown"]) document.addEventListener(event, closeCard);

  // ---- two of the theme's buttons ----
  document.addEventListener("click", ({ target }) => window[target.closest?.("[data-press]")?.dataset.press]?.());

  // ---- arrow keys turn the page unless something else uses them ----
  const OWN = "input, textarea, select, button, summary, dialog, [contenteditable], [role], [tabindex], .widget";
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideNote();
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || event.defaultPrevented) return;
    const side = { ArrowLeft: ".left-prev", ArrowRight: ".right-next" }[event.key];
    const held = document.activeElement;
    if (!side || (held && held !== document.body && held.closest(OWN) && !held.matches("a"))) return;
    document.querySelector(`.prev-next-area ${side}`)?.click();
  });
}
