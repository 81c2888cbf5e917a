// Repairs of the theme's markup that a screen reader would stumble over, links to what is folded, what scrolls,
// notes of links, arrow keys, and the widgets' first step.
{
  const each = (selector, act) => document.querySelectorAll(selector).forEach(act);

  const repair = () => {
    // a label that differs from the text on the button ("Show code cell source", "Search Ctrl+K")
    each("details > summary[aria-label]", (summary) => summary.removeAttribute("aria-label"));
    each(".search-button-field[aria-label]", (button) => button.removeAttribute("aria-label"));
    // the icons of a button that has a label need no titles of their own
    each(".theme-switch-button [title]", (icon) => icon.removeAttribute("title"));
    // a list holds items, and the logo stands in a landmark
    each(".citation-list > .citation", (entry) => entry.setAttribute("role", "listitem"));
    each(".bd-sidebar-primary .navbar-brand.logo", (logo) => {
      logo.parentElement.setAttribute("role", "region");
      logo.parentElement.setAttribute("aria-label", "Book");
    });
  };

  // a link to something folded opens every fold around it
  const unfold = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    let fold = target?.closest("details");
    if (!fold) return;
    for (; fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", unfold);
  document.addEventListener("DOMContentLoaded", unfold);

  // a widget is a module in widgets/ that fills its place; one that has much to load waits until it is asked
  const fill = (root) => {
    const note = document.createElement("p");
    note.className = "widget-note";
    note.setAttribute("role", "status");
    const say = (text) => (note.textContent = text);
    const open = async () => {
      if (location.protocol === "file:") {
        say("A page opened as a file may not load this. Run “make serve” and open the address that it prints.");
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
      root.removeAttribute("aria-busy");
      button.removeAttribute("aria-disabled");
    });
    note.before(button);
  };
  document.addEventListener("DOMContentLoaded", () => each("[data-widget]", fill));

  document.addEventListener("DOMContentLoaded", repair);

  // ---- what scrolls ----
  const LEAST = 9; // pixels: no text of a drawing is smaller
  const SCROLLS = ".bd-article :is(pre, figure, p, .katex-display, .pst-scrollable-table-container, .text_html, .cell_output, .drawing-box)";

  // a drawing that would shrink its labels below LEAST keeps a size and scrolls
  const keepLegible = () => {
    each(".bd-article svg[viewBox]:not(.drawing)", (drawing) => {
      if (!drawing.isConnected || drawing.closest(".katex") || !drawing.getClientRects().length) return;
      drawing.style.minWidth = "";
      const scale = drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width;
      const sizes = [...drawing.querySelectorAll("text")].map((text) => parseFloat(getComputedStyle(text).fontSize));
      const least = Math.min(...sizes) * scale;
      if (!(least < LEAST)) return;
      drawing.style.minWidth = `${Math.ceil((LEAST / least) * scale * drawing.viewBox.baseVal.width)}px`;
      if (drawing.parentElement.classList.contains("drawing-box")) return;
      const box = document.createElement("div");
      box.className = "drawing-box";
      drawing.replaceWith(box);
      box.append(drawing);
    });
  };

  // it can be reached with the keyboard, and it fades where more follows
  const cue = (box) => {
    const wide = box.scrollWidth > box.clientWidth;
    box.classList.toggle("scrolls", wide);
    box.classList.toggle("more-right", wide && box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
    if (wide && !box.hasAttribute("tabindex")) box.tabIndex = 0;
    if (!wide || box.dataset.cued) return;
    box.dataset.cued = "true";
    box.addEventListener("scroll", () => cue(box), { passive: true });
  };
  const cueAll = () => {
    keepLegible();
    each(SCROLLS, cue);
  };
  const start = () => {
    cueAll();
    let waiting;
    window.addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(cueAll, 200);
    });
    document.addEventListener("toggle", cueAll, true); // what was folded has a width only now
    document.fonts.ready.then(cueAll); // formulas have a width only now
  };
  window.addEventListener("load", start);

  // ---- the note of a link to a term or a paper: for the pointer, and for the keyboard ----
  const NOTED = ".bd-article a:is([href*='glossary.html#'], [href*='bibliography.html#'])";
  let note;
  const hideNote = () => {
    note?.remove();
    note = undefined;
  };
  const showNote = ({ target }) => {
    const link = target.closest?.(NOTED);
    if (!link) return;
    link.dataset.note ??= link.title;
    link.removeAttribute("title"); // the browser's own would come on top
    if (!link.dataset.note) return;
    hideNote();
    note = document.createElement("div");
    note.className = "link-note";
    note.id = "link-note";
    note.setAttribute("role", "tooltip");
    note.textContent = link.dataset.note;
    link.setAttribute("aria-describedby", note.id);
    document.body.append(note);
    const [at, size] = [link.getBoundingClientRect(), note.getBoundingClientRect()];
    note.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - size.width - 8))}px`;
    const below = at.bottom + 6;
    note.style.top = `${below + size.height > innerHeight ? Math.max(0, at.top - size.height - 6) : below}px`;
  };
  for (const event of ["mouseover", "focusin"]) document.addEventListener(event, showNote);
  for (const event of ["mouseout", "focusout"]) document.addEventListener(event, ({ target }) => target.closest?.(NOTED) && hideNote());
  document.addEventListener("scroll", hideNote, { passive: true });

  // ---- arrow keys turn the page, where nothing else wants them ----
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
