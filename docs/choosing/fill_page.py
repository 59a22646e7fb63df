"""Fills the tables of the pages from the committed results, so that nobody types a number.

    python docs/choosing/fill_page.py [--check]

With --check nothing is written, and the exit code is 1 where a table of a page differs.
"""

from __future__ import annotations

import sys

from page import page_tables
from paths import PAGES, tables

if __name__ == "__main__":
    made = page_tables()
    sys.exit(max([tables.fill(page, made) for page in PAGES]))
