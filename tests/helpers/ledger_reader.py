"""A reader of ledgers by the words of docs/ledger.md alone: sqlite3, json and hashlib, and nothing of dpassay."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

Counts = Counter[Any]


class Entry(NamedTuple):
    """One entry, its body read."""

    seq: int
    run: str
    kind: str
    body: dict[str, Any]
    hash: str


def entries(ledger: Path) -> list[Entry]:
    """All entries, of a file whose chain is whole; none before the file exists.

    A copy is read, so that what a killed process left is not touched.
    """
    if not ledger.exists():
        return []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.sqlite"
        for end in ("", "-wal"):
            if (part := Path(f"{ledger}{end}")).exists():
                shutil.copy(part, f"{copy}{end}")
        with contextlib.closing(sqlite3.connect(copy)) as database:
            rows = database.execute("SELECT seq, run, kind, body, previous, hash FROM entries ORDER BY seq").fetchall()
    return list(_chained(rows))


def _chained(rows: Iterable[tuple[Any, ...]]) -> Iterable[Entry]:
    last = "0" * 64
    for index, (seq, run, kind, text, previous, digest) in enumerate(rows, 1):
        body = json.loads(text)
        lines = "\n".join([str(seq), run, kind, previous, text])
        assert (seq, previous) == (index, last), f"entry {index} does not follow the one before"
        assert hashlib.sha256(lines.encode()).hexdigest() == digest, f"entry {index} has another hash"
        assert json.dumps(body, sort_keys=True, separators=(",", ":")) == text, f"entry {index} is not canonical"
        last = digest
        yield Entry(seq, run, kind, body, digest)


class RunRead:
    """What the ledger says of one run; the order and the counts of its entries are checked.

    Attributes:
        about: public metadata.
        committed: key → value.
        finished: whether it was finished.
        verdicts: the entries of verdicts.
        releases: the bodies of releases.
        whole: whether what was charged is what was planned.
    """

    def __init__(self, result: Iterable[Entry]) -> None:
        begin, *rest = result
        assert begin.kind == "begin"
        self.about: dict[str, Any] = begin.body["about"]
        self.committed: dict[str, Any] = {}
        self.verdicts: list[Entry] = []
        self.releases: list[dict[str, Any]] = []
        self.finished = False
        charges: dict[str, dict[str, Any]] = {}
        for entry in rest:
            self._read(entry, charges)
        charged, plan = _charged(charges.values()), _counted(begin.body["plan"])
        assert _fits(charged, plan), "more was charged than planned"
        self.whole = _equal(charged, plan)
        assert self.whole or not self.finished, "a finished run is off its plan"

    def _read(self, entry: Entry, charges: dict[str, dict[str, Any]]) -> None:
        kind, body = entry.kind, entry.body
        assert self.finished == (kind in ("verdict", "release")), f"a {kind} on the wrong side of the end of the run"
        if kind == "charge":
            assert body["key"] not in charges, f"{body['key']} was charged twice"
            charges[body["key"]] = body
        elif kind == "commit":
            assert body["key"] in charges, f"{body['key']} was committed without a charge"
            assert body["key"] not in self.committed, f"{body['key']} was committed twice"
            self.committed[body["key"]] = body["value"]
        elif kind == "verdict":
            self.verdicts.append(entry)
        elif kind == "release":
            self.releases.append(body)
        else:
            assert kind == "finish"
            self.finished = True

    def steps(self, stage: str) -> int:
        """How many steps ``stage/0``, ``stage/1``, … are committed."""
        return sum(key.startswith(f"{stage}/") for key in self.committed)

    def documents(self) -> list[dict[str, Any]]:
        """The committed documents, as rows of the files."""
        chunks = [self.committed[f"documents/{index}"] for index in range(self.steps("documents"))]
        names = [name for name, _ in chunks[0]["columns"]] if chunks else []
        rows = [dict(zip(names, row, strict=True)) for chunk in chunks for row in chunk["rows"]]
        assert not chunks or len(rows) == chunks[0]["count"] or not self.finished
        return rows


def runs(result: Iterable[Entry]) -> dict[str, RunRead]:
    """What the entries say of each run, by its name."""
    parted: dict[str, list[Entry]] = {}
    for entry in result:
        if entry.kind != "open":
            parted.setdefault(entry.run, []).append(entry)
    return {name: RunRead(own) for name, own in parted.items()}


def _counted(event: dict[str, Any], times: int = 1) -> tuple[Counts, list[list[Counts]]]:
    """How often each simple event runs on the whole data, and in each part of each parallel composition."""
    kind = event["type"]
    if kind == "SelfComposedDpEvent":
        return _counted(event["event"], times * event["count"])
    if kind == "ParallelDpEvent":
        parts = [_counted(part) for part in event["events"]]
        assert times == 1
        assert not any(inner for _, inner in parts)
        return Counter(), [[part for part, _ in parts]]
    if kind != "ComposedDpEvent":
        return Counter() if kind == "NoOpDpEvent" else Counter({json.dumps(event, sort_keys=True): times}), []
    whole: Counts = Counter()
    parallel: list[list[Counts]] = []
    for child in event["events"]:
        counts, parts_of_it = _counted(child, times)
        whole += counts
        parallel += parts_of_it
    return whole, parallel


def _charged(charges: Iterable[dict[str, Any]]) -> tuple[Counts, list[list[Counts]]]:
    """The same of charges."""
    whole: Counts = Counter()
    partitions: dict[str, dict[str, Counts]] = {}
    for charge in charges:
        times = charge["counts"] or [1] * max(1, len(charge["parts"]))
        if charge["partition"] is None:
            counts, parallel = _counted(charge["event"], times[0])
            assert not parallel
            whole += counts
        for part, number in zip(charge["parts"], times, strict=False):
            own = partitions.setdefault(charge["partition"], {})
            own[part] = own.get(part, Counter()) + _counted(charge["event"], number)[0]
    return whole, [[counts for counts in parts.values() if counts] for parts in partitions.values()]


def _sorted(parts: Iterable[Counts]) -> list[Counts]:
    return sorted(parts, key=lambda counts: (-counts.total(), sorted(counts.items())))


def _fits(charged: tuple[Counts, list[list[Counts]]], plan: tuple[Counts, list[list[Counts]]]) -> bool:
    """Whether the charges are within the plan, for partitions whose parts are alike but for their counts."""
    (whole, partitions), (planned, parallel) = charged, plan
    return whole <= planned and all(
        any(
            len(parts) <= len(indices)
            and all(part <= index for part, index in zip(_sorted(parts), _sorted(indices), strict=False))
            for indices in parallel
        )
        for parts in partitions
    )


def _equal(charged: tuple[Counts, list[list[Counts]]], plan: tuple[Counts, list[list[Counts]]]) -> bool:
    (whole, partitions), (planned, parallel) = charged, plan
    return whole == planned and sorted(map(_sorted, partitions), key=repr) == sorted(map(_sorted, parallel), key=repr)
