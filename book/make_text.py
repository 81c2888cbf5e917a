"""Write the prose of all chapters to transformer_lit/data/book.txt: `python book/make_text.py`.

The file is an edition: models are trained on it, so it changes only when someone runs this again.
Chapters come in the order of the book, each after a separator and its path. Code, displayed
formulas, tables and the frames of exercises are left out, and references are reduced to their text.
"""

import cards

from transformer_lit.course.book import SEPARATOR, chapter_text
from transformer_lit.course.files import write_text

TARGET = cards.ROOT / "transformer_lit/data/book.txt"


def main() -> None:
    texts = {cards.page(path): chapter_text(path) for path in cards.chapters().values()}
    out = [f"{SEPARATOR}{file}\n{text}" for file, text in texts.items()]
    write_text(TARGET, "".join(out))
    print(f"{len(out)} chapters, {sum(map(len, out)):,} characters in {TARGET}")


if __name__ == "__main__":
    main()
