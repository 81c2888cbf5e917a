// Shows readers where they are: scrolls the contents to the entry of the page, ticks each chapter that was read to its end
// (in the map, with a thick green border), and links the first page to the last page read. Stored only in this browser.
{
  const KEY = "transformer_lit.places";

  const start = () => {
    const entries = [...document.querySelectorAll(".bd-sidebar-primary .part a[data-page]")];
    const here = entries.find((entry) => entry.classList.contains("current"));
    let kept = { last: "", read: [] };
    const load = () => {
      try {
        const { last, read } = JSON.parse(localStorage.getItem(KEY));
        kept = { last: String(last), read: read.map(String) };
      } catch {} // no entry, storage is forbidden, or the entry isn't ours
    };
    const save = () => {
      try {
        localStorage.setItem(KEY, JSON.stringify(kept));
      } catch {} // storage is forbidden or full
    };
    const show = () => {
      for (const entry of entries) entry.classList.toggle("read", kept.read.includes(entry.dataset.page));
      for (const box of document.querySelectorAll(".transformer-map a")) {
        const { pathname } = new URL(box.getAttribute("href"), location);
        const leads = entries.find((entry) => entry.pathname === pathname);
        const read = kept.read.includes(leads?.dataset.page);
        box.classList.toggle("read", read);
        box.setAttribute("aria-description", read ? "read" : "");
      }
      const last = entries.find((entry) => entry.dataset.page === kept.last);
      for (const line of document.querySelectorAll(".continue")) {
        line.hidden = !last;
        if (last) [line.querySelector("a").textContent, line.querySelector("a").href] = [last.textContent, last.href];
      }
    };
    load();
    if (here) {
      kept.last = here.dataset.page;
      save();
    }
    show();
    window.addEventListener("storage", () => {
      load();
      show();
    });

    // a page whose end is visible at once isn't read yet
    const end = document.querySelector(".prev-next-area");
    if (here && end) {
      const fits = end.getBoundingClientRect().top < innerHeight;
      const seen = new IntersectionObserver(([{ isIntersecting }]) => {
        if (!isIntersecting) return;
        seen.disconnect();
        load(); // another tab may have changed the entry
        kept.read = [...new Set([...kept.read, here.dataset.page])];
        save();
        show();
      });
      setTimeout(() => seen.observe(end), fits ? 15_000 : 0);
    }

    const toSight = () => {
      const scrolls = here?.closest(".bd-sidebar-primary, dialog");
      if (!scrolls) return;
      const [entry, box] = [here.getBoundingClientRect(), scrolls.getBoundingClientRect()];
      if (entry.top < box.top || entry.bottom > box.bottom) scrolls.scrollTop += entry.top - box.top - box.height / 3;
    };
    toSight();
    document.addEventListener("click", ({ target }) => target.closest?.(".primary-toggle") && setTimeout(toSight));
  };
  window.addEventListener("load", start); // after the theme has restored the scroll position of the contents
}
