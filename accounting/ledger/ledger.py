"""The ledger: what a run did, as an append-only, hash-chained record of privacy events.

A step has two phases. Its event is charged at its worst-case cost *before* anything is sampled. The sampled value and
its realised cost are committed together, and only a committed value may be released. The commit of one step and the
charge of the next are one transaction. A run that was killed resumes from its ledger: committed values are replayed,
and a step that was charged and never committed is sampled again under the same charge, because no value of it was
released. So the ledger may count a step that never ran, and never misses one whose value was released.

``docs/ledger.md`` describes the entries, and what the hash chain detects and what it does not.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal, Self

from dp_accounting import DpEvent, dp_event

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ledger.anchor import Anchor, Anchored
from dpassay.accounting.ledger.chain import check_chain
from dpassay.accounting.ledger.entries import (
    GENESIS,
    Json,
    LedgerError,
    LedgerEvent,
    LedgerRow,
    canonical,
    check_name,
)
from dpassay.accounting.ledger.run import Run, relation_in, tallies
from dpassay.accounting.ledger.store import Store
from dpassay.base.atomic_file import replacing


class Ledger:
    """The record of one or several runs over one data set, in one file. Several processes may write it at once.

    Open it with `Ledger.open`, as a context manager.
    """

    def __init__(self, store: Store, anchor: Anchor | None = None) -> None:
        self._store = store
        self._anchor = anchor
        self._anchored = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        read_only: bool = False,
        timeout: float = 30.0,
        anchor: str | os.PathLike[str] | Literal[False] | None = None,
    ) -> Ledger:
        """Opens a ledger and verifies it, or creates one that only its owner may read.

        The chain, SQLite's pages and the anchor are verified first; see `Ledger.verify`. Later reads are compared with
        what was verified: an entry that was changed or removed meanwhile raises. Entries of other processes are
        verified before they are read. The anchor is compared at opening only.

        Args:
            path: the file, in an existing folder of a local disk.
            create: create it if it does not exist.
            read_only: never write an entry; the ledger must exist.
            timeout: seconds to wait while another process writes.
            anchor: the file that holds the ledger's head, see `dpassay.accounting.ledger.anchor`. None is a file in the
                user's state folder; False uses none, so that a restored or rewritten ledger is not detected.

        Raises:
            LedgerError: if the file does not exist, is not a ledger, is of a newer format, does not verify, differs
                from its anchor, is locked, or cannot be accessed.
        """
        store = Store.open(Path(path), create=create, read_only=read_only, timeout=timeout)
        try:
            ledger = cls(store, _anchor_of(store, anchor))
            ledger._check_anchor()
        except BaseException:
            store.close()
            raise
        return ledger

    def _check_anchor(self) -> None:
        known = None if self._anchor is None else self._anchor.read(must_exist=self._store.read_only)
        if self._anchor is None or known is None:
            return
        entries = self.entries  # reads what another process appended, and may have anchored, since the verification
        if self._store.hash_of(known.entries) != known.head:
            was = f"{known.entries} entries were anchored in {self._anchor.source}"
            if entries < known.entries:
                was += f", and {entries} are here; restore the newer file"
                raise LedgerError(f"{self.path}: this ledger had more entries before: {was}")
            raise LedgerError(f"{self.path}: this ledger was rewritten: {was}, with another head; restore that file")
        self._anchored = True

    def _advance_anchor(self) -> None:
        self._anchored = self._anchor is not None and self._anchor.advance(Anchored(*self._store.tip()))

    def close(self) -> None:
        """Closes the file. Does nothing if it is closed."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The file."""
        return self._store.path

    @property
    def head(self) -> str:
        """The hash of the last entry, 64 hexadecimal digits. It may be published, since it depends on a secret salt."""
        return self._store.tip()[1]

    @property
    def entries(self) -> int:
        """The number of entries."""
        return self._store.tip()[0]

    @property
    def identity(self) -> str:
        """The hash of the first entry: copies of a ledger share it, other ledgers do not."""
        return self._store.hash_of(1) or GENESIS

    @property
    def anchored(self) -> bool:
        """Whether the head is stored elsewhere: an anchor existed at opening, and was written at the end of every run
        since.

        If not, a restored or rewritten file is not detected.
        """
        return self._anchored

    def begin(self, run: str, *, plan: DpEvent, adjacency: Adjacency, unit: Unit, about: Mapping[str, Json]) -> Run:
        """Begins a run, or resumes the run of that name.

        Args:
            run: its name.
            plan: the event that it charges in all.
            adjacency: the neighbouring relation of all of its events.
            unit: their privacy unit.
            about: public metadata, in JSON types. It must not depend on the private data.

        Raises:
            LedgerError: if the run exists with another plan, adjacency, unit or `about`.
        """
        check_name(run, "the name of a run")
        body = {
            "about": dict(about),
            "adjacency": Adjacency(adjacency).value,
            "plan": events.to_json(events.compose([(plan, 1)])),
            "unit": str(unit),
        }
        text = canonical(body)
        with self._store.transaction():
            known = self._store.find(run, "begin")
            if known is None:
                self._store.append(run, "begin", body)
        if known is not None and canonical(known) != text:
            raise LedgerError(f"{self.path}: run {run!r} began with another {_difference(known, json.loads(text))}")
        return Run(self._store, run, known or json.loads(text), self._advance_anchor)

    def run(self, name: str) -> Run:
        """The run of that name.

        Raises:
            LedgerError: if there is none.
        """
        body = self._store.find(name, "begin")
        if body is None:
            raise LedgerError(f"{self.path}: no run {name!r}; it holds {', '.join(map(repr, self.runs())) or 'none'}")
        return Run(self._store, name, body, self._advance_anchor)

    def runs(self) -> list[str]:
        """The names of all runs, in the order in which they began."""
        return [run for run, _ in self._store.bodies("begin")]

    def relation(self) -> tuple[Adjacency, Unit]:
        """The adjacency and the unit that all runs share.

        Raises:
            LedgerError: if they differ, or there is no run.
        """
        return common_relation((f"run {run!r}", relation_in(body)) for run, body in self._store.bodies("begin"))

    def events(self) -> list[LedgerEvent]:
        """The charges, equal ones merged, in the order of their first occurrence. They contain no private number."""
        return [event for tally in tallies(self._store).values() for event in tally.events()]

    def event(self, run: str | None = None) -> DpEvent:
        """The composition of all charges of one run, or of all runs.

        The charges of each partition of a run become one `ParallelDpEvent` over the compositions of its parts; parts
        that were never charged do not appear. The form is canonical: a run that charged its plan compares equal with
        ``events.compose`` of the plan.

        Raises:
            LedgerError: if the run does not exist, or runs differ in adjacency or unit.
        """
        if run is not None:
            return self.run(run).event()
        if not self.runs():
            return dp_event.NoOpDpEvent()
        self.relation()
        return events.compose([(tally.event(), 1) for tally in tallies(self._store).values()])

    def verify(self, *, expected_head: str | None = None) -> str:
        """Recomputes the chain and checks each entry against the earlier ones, as opening does.

        It detects every changed, removed or inserted entry, charges outside a run or beyond its plan, commits without a
        charge, and finished runs that differ from their plan. Removing entries at the *end* leaves a shorter valid
        chain, and rewriting the whole chain leaves a valid one; only a head that is known from before detects these.

        Args:
            expected_head: a head that was printed; it must be the hash of one of the entries.

        Returns:
            The head.

        Raises:
            LedgerError: naming the first bad entry.
        """
        try:
            with contextlib.closing(self._store.rows()) as rows:
                head = check_chain(rows, expected_head)
        except LedgerError as error:
            raise LedgerError(f"{self.path}: {error}") from None
        self._store.check_file()
        return head

    def export(self, path: str | os.PathLike[str]) -> None:
        """Writes all entries as JSON Lines, for `verify_export`. The file is private; only its owner may read it.

        Raises:
            LedgerError: if the ledger does not verify, or the file cannot be written; no file is left.
        """
        target = Path(path)
        if target.exists() and target.samefile(self.path):
            raise LedgerError(f"{target}: this is the ledger itself; export it to another file")
        if target.exists() and not target.is_file():
            raise LedgerError(f"{target}: is not a regular file, so it cannot be replaced; export to another file")
        try:
            with replacing(target) as file, contextlib.closing(self._store.rows()) as rows:
                check_chain(_copied(rows, file))
        except OSError as error:
            raise LedgerError(f"{target}: {(error.strerror or str(error)).lower()}") from None
        except LedgerError as error:
            raise LedgerError(f"{self.path}: {error}") from None


def _anchor_of(store: Store, chosen: str | os.PathLike[str] | Literal[False] | None) -> Anchor | None:
    if chosen is False:
        return None
    return Anchor(store.hash_of(1) or GENESIS, None if chosen is None else Path(chosen))


@contextlib.contextmanager
def open_ledgers(
    paths: Iterable[str | os.PathLike[str]], *, anchor: str | os.PathLike[str] | Literal[False] | None = None
) -> Iterator[list[Ledger]]:
    """Opens several ledgers for reading; each is verified once.

    Args:
        paths: the files.
        anchor: see `Ledger.open`; one file may hold the anchors of several ledgers.

    Raises:
        LedgerError: if a ledger cannot be opened, or two are copies of the same ledger.
    """
    with contextlib.ExitStack() as stack:
        results: dict[str, Ledger] = {}
        for path in paths:
            ledger = stack.enter_context(Ledger.open(path, read_only=True, anchor=anchor))
            other = results.setdefault(ledger.identity, ledger)
            if other is not ledger:
                raise LedgerError(f"{path}: a copy of {other.path}; give each ledger once")
        yield list(results.values())


def compose_ledgers(ledgers: Iterable[Ledger]) -> DpEvent:
    """The composition of the charges of several ledgers over one data set.

    The caller has to know that the data set is the same; for different data sets the composition is still an upper
    bound.

    Raises:
        LedgerError: if adjacencies or units differ, or a ledger has no run.
    """
    chosen = list(ledgers)
    relation_of(chosen)
    return events.compose([(ledger.event(), 1) for ledger in chosen])


def relation_of(ledgers: Iterable[Ledger]) -> tuple[Adjacency, Unit]:
    """The adjacency and the unit that all runs of several ledgers share.

    Raises:
        LedgerError: if they differ, or a ledger has no run.
    """
    return common_relation((str(ledger.path), ledger.relation()) for ledger in ledgers)


def common_relation(result: Iterable[tuple[str, tuple[Adjacency, Unit]]]) -> tuple[Adjacency, Unit]:
    """The adjacency and the unit that several named things share; a `LedgerError` if they differ, or there are none."""
    first: tuple[str, tuple[Adjacency, Unit]] | None = None
    for where, relation in result:
        if first is None:
            first = (where, relation)
        elif relation != first[1]:
            texts = [f"{name} has {adjacency.value}, {unit}" for name, (adjacency, unit) in (first, (where, relation))]
            raise LedgerError(f"costs at different adjacencies or units do not compose: {'; '.join(texts)}")
    if first is None:
        raise LedgerError("the ledger holds no run, so there is nothing to account for")
    return first[1]


def _copied(rows: Iterable[LedgerRow], file: BinaryIO) -> Iterable[LedgerRow]:
    for row in rows:
        file.write((json.dumps(row._asdict(), ensure_ascii=True, separators=(",", ":")) + "\n").encode())
        yield row


def _difference(known: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """The first public field that differs between two beginnings of a run."""
    for name in ("plan", "adjacency", "unit"):
        if known[name] != given[name]:
            return f"{name}; give it another name or a new ledger"
    old, new = known["about"], given["about"]
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return f"{', '.join(map(repr, keys))}; give it another name or a new ledger"
