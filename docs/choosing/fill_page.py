"""Fills the tables of the page from the committed results, so that nobody types a number.

    python docs/choosing/fill_page.py [--check]

With --check nothing is written, and the exit code is 1 where a table of the page differs.
"""

from __future__ import annotations

import sys

from page import page_tables
from paths import PAGE, tables

if __name__ == "__main__":
    sys.exit(tables.fill(PAGE, page_tables()))
