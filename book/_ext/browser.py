"The browser that prints the book and tests its pages."

import os
import shutil


def find_chromium() -> str | None:
    "The browser named by CHROMIUM, or the system's; None if there is none."
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)
