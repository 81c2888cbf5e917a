"Figures and text: what is drawn can be read in light and dark, in its own font."

import pytest

from transformer_lit.course.figures import contrast

weekly = pytest.mark.weekly
PAGES = [  # boxes, heat maps, bars, curves, points, coloured words, the family
    *("nbs/attention/05_multihead", "nbs/training/03_schedule"),
    *(
        pytest.param(page, marks=weekly)
        for page in (
            *("book/intro", "nbs/attention/03_attend", "nbs/block/06_wiring"),
            *("nbs/inference/02_beam", "nbs/position/01_absolute", "nbs/text/03_word_vectors"),
            "nbs/training/02_data",
        )
    ),
]
TEXT, LINE = 4.5, 3
FONTS = 60_000  # bytes

# of each figure: its texts, each with its ink and the ground under it, and the colours of its lines
SEEN = r"""() => {
    document.querySelectorAll("details").forEach((fold) => (fold.open = true));
    const paper = getComputedStyle(document.body).backgroundColor;
    const parts = (colour) => {
        const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
        return [r, g, b, a];
    };
    const over = ([r, g, b, a], ground) =>
        [r, g, b].map((c, i) => a * c + (1 - a) * ground[i]);
    const under = (drawing, x, y) => {
        const found = [];
        for (const it of document.elementsFromPoint(x, y)) {
            if (it === drawing) break;
            if (!drawing.contains(it) || it.closest("text")) continue;
            if (it.tagName === "image") return null;
            const style = getComputedStyle(it);
            if (style.fill === "none") continue;
            const [r, g, b, a] = parts(style.fill);
            found.push([r, g, b, a * style.fillOpacity * style.opacity]);
        }
        return found.reverse().reduce((ground, top) => over(top, ground), parts(paper).slice(0, 3));
    };
    return [...document.querySelectorAll(".bd-article svg.drawing")].map((drawing) => {
        drawing.scrollIntoView({ block: "center", behavior: "instant" });
        const texts = [...drawing.querySelectorAll("text")].map((text) => {
            const box = text.getBoundingClientRect();
            const ground = under(drawing, box.x + box.width / 2, box.y + box.height / 2);
            return [text.textContent, parts(getComputedStyle(text).fill).slice(0, 3), ground];
        });
        const images = [...drawing.querySelectorAll("image")];
        const boxes = images.map((image) => image.getBoundingClientRect());
        const apart = (line) => {
            const box = line.getBoundingClientRect();
            const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
            return !boxes.some((b) => b.left < x && x < b.right && b.top < y && y < b.bottom);
        };
        const lines = [...drawing.querySelectorAll("path, use")]
            .filter((line) => !line.closest("defs") && apart(line))
            .map((line) => getComputedStyle(line))
            .filter((style) => style.stroke !== "none" && style.fill === "none")
            .map((style) => parts(style.stroke).slice(0, 3));
        const scheme = getComputedStyle(drawing).colorScheme;
        return { texts, lines, paper: parts(paper).slice(0, 3), scheme };
    });
}"""
BLACK, WHITE = [0, 0, 0], [255, 255, 255]


def apart(one, other):
    return contrast(*([part / 255 for part in colour] for colour in (one, other)))


@pytest.mark.parametrize("path", PAGES)
def test_a_figure_follows_the_mode_and_can_be_read_in_both(wide, path):
    wide.goto(f"{path}.html", wait_until="load")
    ids = wide.eval_on_selector_all("svg.drawing [id]", "(all) => all.map((one) => one.id)")
    assert len(ids) == len(set(ids))
    found = {}
    for mode in ("light", "dark"):
        wide.evaluate("(mode) => (document.documentElement.dataset.theme = mode)", mode)
        found[mode] = wide.evaluate(SEEN)
    assert found["light"]
    for light, dark in zip(found["light"], found["dark"], strict=True):
        assert (light["scheme"], dark["scheme"]) == ("light", "dark")
        assert apart(light["paper"], dark["paper"]) > 15
        for (text, ink, ground), (_, other, night) in zip(light["texts"], dark["texts"]):
            if ground is None:  # on an image: it stays; where the page is seen through, it turns
                assert night is None and (other == ink or (ink, other) == (BLACK, WHITE)), text
            else:
                assert apart(other, night) >= TEXT - 0.05, (text, other, night)
        for line, other in zip(light["lines"], dark["lines"], strict=True):
            least = min(LINE, 0.9 * apart(line, light["paper"]))  # a grid is as faint as it was
            assert apart(other, dark["paper"]) >= least, (line, other)


@weekly
def test_the_text_has_the_fonts_of_the_book_and_moves_little_when_they_come(page, site):
    page.route(
        "**/fonts/SourceSans3-*.woff2", lambda r: (page.wait_for_timeout(400), r.continue_())
    )
    page.goto("nbs/attention/03_attend.html", wait_until="load")
    shift = """() => new Promise((go) => {
        let sum = 0;
        const add = (list) => list.getEntries().forEach((one) => (sum += one.value));
        new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });
        document.fonts.ready.then(() => setTimeout(() => go(sum), 300));
    })"""
    assert page.evaluate(shift) <= 0.1
    family = "getComputedStyle(document.querySelector('.bd-article p')).fontFamily"
    assert page.evaluate(family).startswith('"Source Sans 3"')
    for style in ("", "bold ", "italic "):
        assert page.evaluate("(font) => document.fonts.check(font)", f"{style}17px 'Source Sans 3'")
    loaded = {url.rpartition("/")[2] for url in page.asked if "SourceSans3" in url}
    assert {"SourceSans3-Regular.woff2", "SourceSans3-Bold.woff2"} <= loaded
    fonts = site / "_static/fonts"
    assert sum((fonts / name).stat().st_size for name in loaded) <= FONTS
    assert "SIL OPEN FONT LICENSE Version 1.1" in (fonts / "LICENSE").read_text(encoding="utf-8")
