"""The ledger: what a run did, as an append-only, hash-chained record of privacy events.

A step has two phases. Its event is charged at its a-priori worst case *before* anything is sampled; the sampled value
and its realised cost are committed together, and only a committed value may leave the process. The commit of one step
and the charge of the next are one transaction. A run that was killed goes on from its ledger: committed values are
replayed, and a step that was charged and never committed is sampled anew under the same charge, because nothing of it
left. So the ledger may count a step that never ran, and never misses one whose value was released.

``docs/ledger.md`` says what an entry holds, what the hash chain shows and what it cannot.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from dp_accounting import DpEvent, dp_event

from cupel.accounting import events
from cupel.accounting.adjacency import Adjacency, Unit
from cupel.accounting.ledger.anchor import Anchor, Anchored
from cupel.accounting.ledger.chain import check_chain
from cupel.accounting.ledger.entries import (
    GENESIS,
    Json,
    LedgerError,
    LedgerEvent,
    Row,
    canonical,
    check_name,
)
from cupel.accounting.ledger.run import Run, relation_in, tallies
from cupel.accounting.ledger.store import Store


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
        """Opens a ledger and verifies it, or makes one that only its owner may read.

        The chain, SQLite's pages and the anchor are verified before anything is read; `Ledger.verify` says what that
        finds. What is read afterwards is compared with what was verified: an entry that was changed meanwhile raises,
        and so does an entry that is missing among those of a run. Entries that other processes append are verified
        before they are read. The anchor is compared at opening only.

        Args:
            path: the file, in an existing folder of a local disk.
            create: make it where there is none.
            read_only: never write an entry; for a ledger that must exist.
            timeout: seconds to wait while another process writes.
            anchor: the file that holds the ledger's head, see `cupel.accounting.ledger.anchor`; None is a file in the
                user's folder for state, False goes without, so that a restored or rewritten ledger is not noticed.

        Raises:
            LedgerError: where the file is missing, no ledger, of a newer format, does not verify, is not the one that
                was anchored, locked or out of reach.
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
        entries = self.entries  # meets what another process appended, and maybe anchored, since the file was verified
        if self._store.hash_of(known.entries) != known.head:
            was = f"{known.entries} entries were anchored in {self._anchor.file}"
            if entries < known.entries:
                was += f", and {entries} are here; restore the newer file"
                raise LedgerError(f"{self.path}: this ledger was further on before: {was}")
            raise LedgerError(f"{self.path}: this ledger was rewritten: {was}, with another head; restore that file")
        self._anchored = True

    def _advance_anchor(self) -> None:
        self._anchored = self._anchor is not None and self._anchor.advance(Anchored(*self._store.tip()))

    def close(self) -> None:
        """Closes the file. A second time does nothing."""
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
        """The hash of the last entry, 64 hexadecimal digits. It may be printed: a secret salt went into it."""
        return self._store.tip()[1]

    @property
    def entries(self) -> int:
        """The number of entries."""
        return self._store.tip()[0]

    @property
    def identity(self) -> str:
        """The hash of the first entry: copies of one ledger share it, other ledgers do not."""
        return self._store.hash_of(1) or GENESIS

    @property
    def anchored(self) -> bool:
        """Whether the head is known elsewhere: an anchor was found at opening, and every end of a run since is there.

        Where it is not, a restored or rewritten file would not show.
        """
        return self._anchored

    def begin(self, run: str, *, plan: DpEvent, adjacency: Adjacency, unit: Unit, about: Mapping[str, Json]) -> Run:
        """Begins a run, or resumes the run of that name.

        Args:
            run: its name.
            plan: the event that it will charge in all.
            adjacency: the neighbouring relation of all of its events.
            unit: their privacy unit.
            about: public metadata, in JSON types. Nothing that depends on the private data belongs here.

        Raises:
            LedgerError: where the run exists with another plan, adjacency, unit or `about`.
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
            LedgerError: where there is none.
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
            LedgerError: where they differ, or there is no run.
        """
        return common_relation((f"run {run!r}", relation_in(body)) for run, body in self._store.bodies("begin"))

    def events(self) -> list[LedgerEvent]:
        """What was charged, equal charges taken together, in the order of their first. No private number is in it."""
        return [event for tally in tallies(self._store).values() for event in tally.events()]

    def event(self, run: str | None = None) -> DpEvent:
        """The composition of all charges of one run, or of all runs.

        The charges of each partition of a run become one `ParallelDpEvent` over the compositions of its parts; a part
        that was never charged does not appear. The form is canonical: a run that charged what its mechanism planned
        compares equal with ``events.compose`` of the plan.

        Raises:
            LedgerError: for an unknown run, and where runs differ in adjacency or unit.
        """
        if run is not None:
            return self.run(run).event()
        if not self.runs():
            return dp_event.NoOpDpEvent()
        self.relation()
        return events.compose([(tally.event(), 1) for tally in tallies(self._store).values()])

    def verify(self, *, expected_head: str | None = None) -> str:
        """Recomputes the chain and checks what each entry says against those before it, as opening does.

        It finds every change of an entry, every entry taken out of the middle or put in, charges outside a run or
        beyond its plan, commits without a charge and finished runs off their plan. Entries taken off the *end* leave a
        shorter chain that is whole, and so does a chain written anew: only a head that is known from before shows that.

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
        """Writes all entries as JSON Lines, for `verify_export`; only the owner may read the file. It is private.

        Raises:
            LedgerError: where the ledger does not verify or the file cannot be written; nothing is left of it then.
        """
        target = Path(path)
        partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
        if target.exists() and target.samefile(self.path):
            raise LedgerError(f"{target}: this is the ledger itself; export it to another file")
        if target.exists() and not target.is_file():
            raise LedgerError(f"{target}: is no file that could be replaced; export it to another one")
        try:
            descriptor = os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file, contextlib.closing(self._store.rows()) as rows:
                check_chain(_copied(rows, file.write))
                file.flush()
                os.fsync(descriptor)
            os.replace(partial, target)
        except OSError as error:
            raise LedgerError(f"{target}: {(error.strerror or str(error)).lower()}") from None
        except LedgerError as error:
            raise LedgerError(f"{self.path}: {error}") from None
        finally:
            partial.unlink(missing_ok=True)


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
        LedgerError: where one cannot be opened, or two are the same ledger or copies of it.
    """
    with contextlib.ExitStack() as stack:
        found: dict[str, Ledger] = {}
        for path in paths:
            ledger = stack.enter_context(Ledger.open(path, read_only=True, anchor=anchor))
            other = found.setdefault(ledger.identity, ledger)
            if other is not ledger:
                raise LedgerError(f"{path}: a copy of {other.path}; give each ledger once")
        yield list(found.values())


def compose_ledgers(ledgers: Iterable[Ledger]) -> DpEvent:
    """What several ledgers over one data set charged together.

    Whether the data sets are one is for the caller to know; the composition of ledgers over different ones is an upper
    bound still.

    Raises:
        LedgerError: where adjacencies or units differ, or a ledger holds no run.
    """
    chosen = list(ledgers)
    relation_of(chosen)
    return events.compose([(ledger.event(), 1) for ledger in chosen])


def relation_of(ledgers: Iterable[Ledger]) -> tuple[Adjacency, Unit]:
    """The adjacency and the unit that all runs of several ledgers share.

    Raises:
        LedgerError: where they differ, or a ledger holds no run.
    """
    return common_relation((str(ledger.path), ledger.relation()) for ledger in ledgers)


def common_relation(found: Iterable[tuple[str, tuple[Adjacency, Unit]]]) -> tuple[Adjacency, Unit]:
    """The adjacency and the unit that several things share, each given with its name.

    Raises:
        ValueError: where they differ, or there are none.
    """
    first: tuple[str, tuple[Adjacency, Unit]] | None = None
    for where, relation in found:
        if first is None:
            first = (where, relation)
        elif relation != first[1]:
            texts = [f"{name} has {adjacency.value}, {unit}" for name, (adjacency, unit) in (first, (where, relation))]
            raise LedgerError(f"costs at different adjacencies or units do not compose: {'; '.join(texts)}")
    if first is None:
        raise LedgerError("the ledger holds no run, so there is nothing to account for")
    return first[1]


def _copied(rows: Iterable[Row], write: Any) -> Iterable[Row]:
    for row in rows:
        write(json.dumps(row._asdict(), ensure_ascii=True, separators=(",", ":")) + "\n")
        yield row


def _difference(known: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Which public field of two beginnings differs."""
    for name in ("plan", "adjacency", "unit"):
        if known[name] != given[name]:
            return f"{name}; give it another name or a new ledger"
    old, new = known["about"], given["about"]
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return f"{', '.join(map(repr, keys))}; give it another name or a new ledger"
