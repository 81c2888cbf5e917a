// Repairs of the theme's markup that a screen reader would stumble over, links to what is folded, wide figures on
// narrow pages, and the widgets' first step.
{
  const each = (selector, act) => document.querySelectorAll(selector).forEach(act);

  const repair = () => {
    // a label that differs from the text on the button ("Show code cell source", "Search Ctrl+K")
    each("details > summary[aria-label]", (summary) => summary.removeAttribute("aria-label"));
    each(".search-button-field[aria-label]", (button) => button.removeAttribute("aria-label"));
    // the icons of a button that has a label need no titles of their own
    each(".theme-switch-button [title]", (icon) => icon.removeAttribute("title"));
    each(".theme-switch-button svg title", (title) => title.remove());
    each(".theme-switch-button svg", (icon) => icon.setAttribute("aria-hidden", "true"));
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
  // again, whenever scripts of the theme have exchanged the icons
  window.addEventListener("load", () => {
    repair();
    // several panels side by side scroll on a narrow page, with the keyboard too
    each(".bd-article figure > img:not(.dark-light)", (image) => {
      const figure = image.parentElement;
      if (image.naturalWidth > 600) figure.classList.add("wide");
      if (figure.scrollWidth > figure.clientWidth) figure.tabIndex = 0;
    });
    const observer = new MutationObserver(repair);
    each(".theme-switch-button", (button) => observer.observe(button, { childList: true, subtree: true }));
  });
}
