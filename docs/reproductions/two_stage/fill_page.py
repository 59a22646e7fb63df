"""Fills the tables of the page from the JSON results, so that nobody types a number.

    python docs/reproductions/two_stage/fill_page.py [--check]

With --check nothing is written, and the exit code is 1 where a table of the page differs.
"""

from __future__ import annotations

import sys

from shared import PAGE, RESULTS, tables

if __name__ == "__main__":
    sys.exit(tables.main(PAGE, RESULTS))
