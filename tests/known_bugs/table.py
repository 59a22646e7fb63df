"""Prints the table of `docs/known-bugs.md`, every number computed; with ``--write``, puts it into the page.

Run with ``python tests/known_bugs/table.py``.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ORDER = (
    "sensitivity_of_an_exchange",
    "fixed_size_batches",
    "contexts_of_two_records",
    "even_medians_of_exchanges",
    "actual_batch_size",
    "noise_from_a_fixed_seed",
    "count_is_ignored",
    "shuffled_batches",
    "running_sums",
    "private_denominator",
    "private_batch_size",
    "clean_histogram",
    "ledger_reset_on_resume",
    "center_without_a_clip",
    "top_k_of_private_logits",
    "half_of_the_noise",
    "half_of_the_noise_of_votes",
)
BEGIN, END = "<!-- table -->", "<!-- end -->"


def table() -> str:
    """Of all exhibits."""
    sys.path[:0] = [str(HERE), str(HERE.parent / "helpers")]
    rows = [str(importlib.import_module(f"test_{name}").exhibit()) for name in ORDER]
    return "\n".join(
        ["| bug | where seen | caught by | claimed ε | shown ε |", "| --- | --- | --- | --- | --- |", *rows]
    )


def main() -> None:
    """Prints or writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write it into docs/known-bugs.md")
    write = parser.parse_args().write
    text = table()
    print(text)
    if write:
        page = HERE.parents[1] / "docs" / "known-bugs.md"
        before, rest = page.read_text(encoding="utf-8").split(BEGIN, 1)
        _, after = rest.split(END, 1)
        page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
