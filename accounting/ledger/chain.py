"""Reads the entries of a ledger in order: verifies the chain, and adds up the charges."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ledger.entries import (
    FORMATS,
    GENESIS,
    KINDS_AFTER_FINISH,
    WHOLE,
    Charge,
    Commit,
    LedgerError,
    LedgerEvent,
    LedgerRow,
    check_name,
    text_of,
)
from dpassay.accounting.ledger.plan import Allowance

_NO_ENTRY = "the printed head is that of no entry of this ledger: the end of it was cut off or rewritten"


class Tally:
    """The charges of one run. Charges that differ only in their key are counted, not stored."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._found: dict[str, tuple[Charge, int]] = {}
        self._partition_of: dict[str, str] = {}
        self._public: dict[str, bool] = {}

    def add(self, body: Mapping[str, Any]) -> Charge:
        """Adds one charge and returns it, or an equal one with another key."""
        text = text_of({name: value for name, value in body.items() if name != "key"})
        charge, count = self._found.get(text, (None, 0))
        if charge is None:
            charge = Charge.from_json(body)
            self._check(charge)
        elif body.get("key") != charge.key:
            charge.check_key(body.get("key"))
        self._found[text] = (charge, count + 1)
        return charge

    def _check(self, charge: Charge) -> None:
        if charge.partition is None:
            return
        if self._public.setdefault(charge.partition, charge.partition_is_public) != charge.partition_is_public:
            raise LedgerError(f"partition {charge.partition!r} of run {self._run!r} is public in one charge only")
        for part in charge.parts:
            if self._partition_of.setdefault(part, charge.partition) != charge.partition:
                raise LedgerError(
                    f"part {part!r} of run {self._run!r} belongs to two partitions; give each part its own name"
                )

    def event(self) -> DpEvent:
        """The composition of all charges: one parallel composition per partition, and the other charges beside it."""
        whole: list[tuple[DpEvent, int]] = []
        parts: dict[str, dict[str, list[tuple[DpEvent, int]]]] = {}
        for charge, times in self._found.values():
            if charge.partition is None:
                whole.append((charge.event, charge.times[WHOLE] * times))
                continue
            for part, count in charge.times.items():
                parts.setdefault(charge.partition, {}).setdefault(part, []).append((charge.event, count * times))
        for partition, charged in parts.items():
            composed = tuple(events.compose(items) for items in charged.values())
            whole.append((events.ParallelDpEvent(composed, self._public[partition]), 1))
        return events.compose(whole)

    def events(self) -> list[LedgerEvent]:
        """The charges, equal ones merged, in the order of their first occurrence."""
        results: dict[tuple[str, str, str | None, tuple[str, ...]], tuple[DpEvent, int]] = {}
        for charge, times in self._found.values():
            by_count: dict[int, list[str]] = {}
            for part, count in charge.times.items():
                by_count.setdefault(count, []).append(part)
            for count, listed in by_count.items():
                parts = tuple(listed) if charge.parts else ()
                key = (text_of(events.to_json(charge.event)), charge.stage, charge.partition, parts)
                results[key] = (charge.event, results.get(key, (charge.event, 0))[1] + count * times)
        return [
            LedgerEvent(event, count, events.is_native(event), self._run, stage, partition, parts)
            for (_, stage, partition, parts), (event, count) in results.items()
        ]


class _Keys:
    """The keys seen so far. Keys that count upwards, ``stage/0``, ``stage/1``, …, take no memory."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._others: set[str] = set()

    def add(self, key: str) -> bool:
        """Adds a key; whether it is new."""
        stage, _, index = key.rpartition("/")
        following = self._next.get(stage, 0)
        if index == str(following):
            self._next[stage] = following + 1
            return key not in self._others
        if key in self._others or (index.isdecimal() and index == str(int(index)) and int(index) < following):
            return False
        self._others.add(key)
        return True


class _CheckedRun:
    """The state of one run while its entries are read."""

    def __init__(self, name: str, plan: DpEvent) -> None:
        self.plan = plan
        self.tally = Tally(name)
        self.allowance = Allowance(plan)
        self.charged = _Keys()
        self.open_charges: dict[str, Charge] = {}
        self.finished = False


class ChainCheck:
    """Reads rows in order and raises at the first that does not follow from the earlier ones.

    Attributes:
        head: the hash of the last entry.
        entries: the number of entries.
        counts: the number of entries of each run and kind.
    """

    def __init__(self, expected_head: str | None = None) -> None:
        self.head = GENESIS
        self.entries = 0
        self._expected = expected_head
        self._seen = expected_head is None or expected_head == GENESIS
        self._runs: dict[str, _CheckedRun] = {}
        self.counts: Counter[tuple[str, str]] = Counter()

    def read(self, row: LedgerRow) -> None:
        """Checks one row; a `LedgerError` names the entry and the reason."""
        try:
            self._read(row)
        except LedgerError as error:
            raise LedgerError(f"entry {self.entries + 1}: {error}") from None
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise LedgerError(f"entry {self.entries + 1}: not what a ledger holds: {reason}") from None
        self.entries += 1
        self.counts[row.run, row.kind] += 1
        self.head = row.hash
        self._seen = self._seen or row.hash == self._expected

    def finish(self) -> str:
        """The head, after the last row; a `LedgerError` if there was no row, or none with the expected head."""
        if not self.entries:
            raise LedgerError("entry 1: missing, a ledger begins with an entry of kind open")
        if not self._seen:
            raise LedgerError(_NO_ENTRY)
        return self.head

    def _read(self, row: LedgerRow) -> None:
        if row.seq != self.entries + 1:
            raise LedgerError(f"missing, the next one has number {row.seq}")
        if row.previous != self.head:
            raise LedgerError("does not follow the entry before it")
        if "\n" in row.run or "\n" in row.kind:
            raise LedgerError("run or kind has a line break")
        if row.hash != row.computed_hash():
            raise LedgerError("was changed, its hash is another")
        body = _parsed(row.body)
        if row.kind == "open":
            if self.entries or row.run or body.get("format") not in FORMATS:
                raise LedgerError("an entry of kind open must be the first, once, and of a known format")
            return
        if not self.entries:
            raise LedgerError("the first entry must be of kind open")
        if row.kind == "begin":
            self._begin(row.run, body)
            return
        run = self._runs.get(row.run)
        if run is None:
            raise LedgerError(f"{row.kind} in a run that never began")
        if row.kind in KINDS_AFTER_FINISH:
            if not run.finished:
                raise LedgerError(f"{row.kind} of a run that was not finished")
            if "key" in body:
                raise LedgerError(f"{row.kind} with a key, which belongs to charges and commits")
        elif run.finished:
            raise LedgerError(f"{row.kind} in a run that was finished")
        elif row.kind == "charge":
            _charge(run, body)
        elif row.kind == "commit":
            _commit(run, body)
        elif row.kind == "finish":
            if run.tally.event() != run.plan:
                raise LedgerError("finish of a run whose charges differ from its plan")
            run.finished = True
        else:
            raise LedgerError("of unknown kind")

    def _begin(self, name: str, body: dict[str, Any]) -> None:
        check_name(name, "the name of a run")
        if name in self._runs:
            raise LedgerError("a run that began before")
        try:
            Adjacency(body["adjacency"])
            Unit.parse(body["unit"])
            plan = events.from_json(body["plan"])
            dict(body["about"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LedgerError(f"not the beginning of a run: {error}") from None
        self._runs[name] = _CheckedRun(name, plan)


def _charge(run: _CheckedRun, body: dict[str, Any]) -> None:
    charge = run.tally.add(body)
    if not run.charged.add(body["key"]):
        raise LedgerError(f"{body['key']!r} is charged a second time")
    run.allowance.take(charge, body["key"])
    run.open_charges[body["key"]] = charge


def _commit(run: _CheckedRun, body: dict[str, Any]) -> None:
    commit = Commit.from_json(body)
    charge = run.open_charges.pop(commit.key, None)
    if charge is None:
        raise LedgerError(f"commit of {commit.key!r}, which was not charged before or is committed already")
    commit.check_against(charge)


def _parsed(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or text_of(body) != text:
        raise LedgerError("its body is no canonical JSON object")
    return body


def check_chain(rows: Iterable[LedgerRow], expected_head: str | None = None) -> str:
    """Checks rows from the first to the last and returns the head; see `ChainCheck`."""
    check = ChainCheck(expected_head)
    for row in rows:
        check.read(row)
    return check.finish()


def verify_export(path: str | Path, *, expected_head: str | None = None) -> str:
    """Verifies a ledger that was exported to JSON Lines, without the ledger itself.

    Args:
        path: the file that `Ledger.export` wrote.
        expected_head: a head that was printed; it must be the hash of one of the entries.

    Returns:
        The head: the hash of the last entry.

    Raises:
        LedgerError: naming the first bad entry.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            return check_chain(_lines(file), expected_head)
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"{path}: {getattr(error, 'strerror', None) or 'not a text in UTF-8'}") from None
    except LedgerError as error:
        raise LedgerError(f"{path}: {error}") from None


def _lines(lines: Iterable[str]) -> Iterator[LedgerRow]:
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            row = LedgerRow(**entry)
            if type(row.seq) is not int or not all(type(value) is str for value in row[1:]):
                raise TypeError
        except (TypeError, ValueError):
            raise LedgerError(f"line {number} is no entry of a ledger") from None
        yield row
