"""A picture of a report: ``python tests/reports/screenshot.py report.html out.png --width 1200 [--dark]``."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str | None:
    """The path of an installed Chromium, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium; the installed one, else playwright's own."""
    with sync_playwright() as playwright:
        instance = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            yield instance
        finally:
            instance.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1200)
    parser.add_argument("--height", type=int, help="crop to this height; default: the whole page")
    parser.add_argument("--dark", action="store_true")
    arguments = parser.parse_args()
    with browser() as instance:
        page = instance.new_page(
            viewport={"width": arguments.width, "height": arguments.height or 900},
            color_scheme="dark" if arguments.dark else "light",
            java_script_enabled=False,
        )
        page.goto(arguments.report.resolve().as_uri())
        page.screenshot(path=arguments.picture, full_page=arguments.height is None)


if __name__ == "__main__":
    main()
