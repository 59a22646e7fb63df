"""Time and memory of what grows with the private records, apart from the language model.

    python benchmarks/many_records.py [--records 10000 100000 1000000 10000000] [--results FILE]

A file of records is made, and a process of its own reads it, hashes the records into the slots of private inference,
reads the records of 2000 slots, computes the digest that a resumed run compares, embeds the records as Aug-PE does, and
counts their votes for 200 candidates. Printed are seconds of processor time and the largest resident memory of that
process, and the exponents from one number of records to the next. Records have about 60 characters, and there are 255
in a slot.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

KEY = bytes(32)
WORDS = [
    "account",
    "balance",
    "card",
    "charge",
    "debit",
    "fee",
    "interest",
    "limit",
    "loan",
    "payment",
    "refund",
    "tax",
]
SLOT = 255


def make(path: Path, records: int) -> None:
    """Writes made-up records, nearly all of them different, and no more than one at a time in memory."""
    with path.open("w", encoding="utf-8") as file:
        for index in range(records):
            words = " ".join(WORDS[(index // 11**place) % 11] for place in range(6))
            file.write(json.dumps({"text": f"Question {index % (records - records // 100)}: {words}."}) + "\n")


def measured(path: Path) -> dict[str, Any]:
    """What this process needs for the records of a file."""
    import numpy as np

    from dpassay.accounting.adjacency import Unit
    from dpassay.data.batching import hashed_slots, label_cells
    from dpassay.data.records import Texts, read_records
    from dpassay.mechanisms.embedding.embedder import HashedNgrams, all_embedded
    from dpassay.mechanisms.embedding.stored_vectors import embedded_records
    from dpassay.mechanisms.evolution.run import records_digest
    from dpassay.mechanisms.evolution.voting import record_votes

    results: dict[str, Any] = {}
    start = time.process_time()

    def mark(name: str) -> None:
        nonlocal start
        now = time.process_time()
        results[name], start = round(now - start, 2), now

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    records = read_records(path)
    mark("read")
    cells = label_cells(records, (), max(1, round(len(records) / SLOT)))
    batches = hashed_slots(records, cells, key=KEY, contexts=SLOT, records_per_context=1, unit=Unit())
    mark("slots")
    seen, slots = 0, np.random.default_rng(0).permutation(len(batches.contexts))[:2000]
    for slot in slots.tolist():
        seen += sum(len(records[index].text) > 0 for context in batches.contexts[slot] for index in context)
    mark("2000 slots")
    records_digest(records)
    mark("digest")
    embedder = HashedNgrams()
    vectors = embedded_records(embedder, Texts(records), len(records))
    mark("embed")
    votes = record_votes(vectors, all_embedded(embedder, [records[index].text for index in range(200)]))
    mark("vote")
    assert votes.sum() == len(records) == batches.units.sum()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"records": len(records), **results, "MiB": peak // 1024, "MiB before": before // 1024}


def main() -> None:
    """Measures each number of records in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", nargs="+", type=int, default=[10**4, 10**5, 10**6, 10**7])
    parser.add_argument("--results", type=Path, metavar="FILE", help="where rows are kept, as JSON")
    parser.add_argument("--of", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.of:
        print(json.dumps(measured(given.of)))
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for records in given.records:
            path = Path(folder, "records.jsonl")
            make(path, records)
            command = [sys.executable, __file__, "--of", str(path)]
            rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            before = rows[-2:-1]
            exponents = {
                name: round(math.log(rows[-1][name] / row[name]) / math.log(rows[-1]["records"] / row["records"]), 2)
                for row in before
                for name in ("read", "slots", "digest", "embed", "vote")
                if row[name] and rows[-1][name]
            }
            print(json.dumps(rows[-1]), "exponents:", exponents, flush=True)
            if given.results:
                body = {"rows": rows, "tables": {"records": table(rows)}}
                given.results.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The table of the guide."""
    names = ("read", "slots", "2000 slots", "digest", "embed", "vote")
    columns = [{"title": "records", "key": "records"}, *({"title": f"{name}, s", "key": name} for name in names)]
    columns.append({"title": "peak memory, MiB", "key": "MiB"})
    shown = [{**{name: f"{row[name]:g}" for name in (*names, "MiB")}, "records": f"{row['records']:,}"} for row in rows]
    return {"columns": columns, "rows": shown}


if __name__ == "__main__":
    main()
