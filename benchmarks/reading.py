"""Reading tables, and finding out what their columns hold, beside csv and pandas; and the memory of a plan.

    python benchmarks/reading.py
    python benchmarks/reading.py --quick --only rows,memory

A made-up table has two columns of numbers, one of dates, one of categories, one of ids and one that is mostly empty,
and is written with commas and with semicolons, and compressed. Rows are wanted as text, by the names of columns: that
is what is hashed. `csv.DictReader` of the standard library takes commas for granted and knows no encoding; pandas reads
all at once. The memory is the largest of `dpassay audit plan --kind table`, in a process of its own, which reads all
rows, finds out what the columns hold, hashes all rows, flips a coin for each, and writes the files of an audit.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip

import csv
import gzip
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from paired_times import Goal, Section, paired, run_script, times_faster

from dpassay.data.columns import columns_of
from dpassay.data.records import read_rows

ROWS = 100_000
PLANNED = {False: 10_000_000, True: 1_000_000}
MAX_GIB = 2.0
_PIECE = 100_000


def write(path: Path, rows: int, separator: str = ",") -> Path:
    """A made-up table, the same for the same number of rows."""
    rng = random.Random(0)
    opened: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.write(separator.join(("id", "height", "income", "visit", "city", "note")) + "\n")
        for start in range(0, rows, _PIECE):
            lines = [
                separator.join(
                    (
                        f"p{number}",
                        f"{rng.gauss(170, 10):.1f}",
                        str(rng.randrange(10**5)),
                        f"20{rng.randrange(10, 24)}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}",
                        rng.choice(("Kiel", "Ulm", "Bonn")),
                        "late" if rng.random() < 0.02 else "",
                    )
                )
                for number in range(start, min(start + _PIECE, rows))
            ]
            file.write("\n".join(lines) + "\n")
    return path


def by_csv(path: Path) -> int:
    with path.open(newline="", encoding="utf-8") as file:
        return sum(1 for _ in csv.DictReader(file))


def by_pandas(path: Path) -> int:
    import pandas

    return len(pandas.read_csv(path, dtype=str, keep_default_na=False).to_dict("records"))


def by_dpassay(path: Path) -> int:
    return sum(1 for _ in read_rows(path))


def rows(rounds: int) -> Section:
    """Rows as text, from each kind of file."""
    section = Section("rows", f"{ROWS} rows as text, by the names of columns", ("file", "read by", "wall ms", "CPU ms"))
    with tempfile.TemporaryDirectory() as folder:
        files = {
            "commas": write(Path(folder, "a.csv"), ROWS),
            "semicolons": write(Path(folder, "b.csv"), ROWS, ";"),
            "gzip": write(Path(folder, "c.csv.gz"), ROWS),
        }
        for name, path in files.items():
            works: dict[str, Callable[[], Any]] = {"dpassay": partial(by_dpassay, path)}
            if name == "commas":
                works |= {"csv": partial(by_csv, path), "pandas": partial(by_pandas, path)}
            results = paired(works, rounds)
            for what, times in results.items():
                section.rows.append((name, what, f"{times.wall_ms:.0f}", f"{times.cpu_ms:.0f}"))
                section.data[f"{name}, {what}"] = times.to_json()
                assert times.answer == ROWS
            if name == "commas":
                ratio = 1 / times_faster(results["dpassay"], results["csv"])
                section.goals.append(Goal("time over that of csv.DictReader", ratio, most=2.0))
                section.goals.append(
                    Goal("times faster than pandas", times_faster(results["dpassay"], results["pandas"]), 1.0)
                )
    return section


def columns(rounds: int) -> Section:
    """What columns hold: kinds, missing cells, ranges, distinct words."""
    import pandas

    section = Section("columns", f"what the columns of {ROWS} rows hold", ("found out by", "wall ms", "CPU ms"))
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder, "a.csv"), ROWS)
        held = [row for _, row in read_rows(path)]
        results = paired(
            {
                "dpassay, of rows that are read": lambda: columns_of(held),
                "dpassay, reading included": lambda: columns_of(row for _, row in read_rows(path)),
                "pandas, reading included, without dates": lambda: pandas.read_csv(path).describe(include="all"),
            },
            rounds,
        )
        for what, times in results.items():
            section.rows.append((what, f"{times.wall_ms:.0f}", f"{times.cpu_ms:.0f}"))
            section.data[what] = times.to_json()
    return section


def memory(rounds: int) -> Section:
    """The largest memory of a plan of canaries for a large file."""
    count = PLANNED[rounds == 1]
    section = Section(
        "memory", f"`dpassay audit plan` for {count} rows", ("rows", "file MiB", "seconds", "largest GiB")
    )
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder, "large.csv"), count)
        code = "import sys; from dpassay.cli.app import run_command; sys.exit(run_command(sys.argv[1:]))"
        options = f"--kind table --like {path} --id id --holdout 0.5 -o {folder}/audit -q"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code, "audit", "plan", *options.split()], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        gib = after.ru_maxrss / 2**20  # the largest of all children; there is no other
        section.rows.append((f"{count:.0e}", f"{path.stat().st_size >> 20}", f"{seconds:.0f}", f"{gib:.2f}"))
        section.data |= {"rows": count, "seconds": seconds, "gib": gib}
        section.goals.append(Goal("largest memory in GiB", gib, most=MAX_GIB))
    return section


SECTIONS = {"rows": (rows, 7, 3), "columns": (columns, 5, 3), "memory": (memory, 2, 1)}

if __name__ == "__main__":
    sys.exit(run_script(SECTIONS, __doc__))
