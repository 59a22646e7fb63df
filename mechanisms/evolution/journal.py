"""The journal of an evolution: every candidate text as soon as it is finished, so that nothing is written twice.

Candidates are what a public language model made of released selections and public text. They are post-processing of
releases that the ledger has already charged, so keeping them costs no privacy, and asking for one again would cost only
time or money. The journal still lies in ``private/``, for the owner only: it is working material, not a result.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from cupel.accounting.errors import CupelError, naming

_VERSION = 1
_LINES, _SECONDS = 64, 2.0  # how much may be lost where the machine stops; nothing where only the process does


class JournalError(CupelError):
    """A journal that cannot be gone on with, in one line that shows nothing of a text."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One finished candidate.

    Attributes:
        label: its public label, or None.
        key: its descent, unique within a label (`evolution`).
        round: that it is a candidate of.
        parent: the key of the candidate that it varies, or None for a random text.
        variation: its place among the variations of that parent in that round, or among the random texts.
        text: cleaned; empty for a random text that could not be had.
    """

    label: str | None
    key: str
    round: int
    parent: str | None
    variation: int
    text: str


class Journal:
    """An append-only file of JSON Lines: a digest of the settings, then one candidate a line.

    Use it as a context manager. A line is with the operating system at once, and on the disk after the next `flush`; a
    last line that a crash cut off is dropped.

    Args:
        path: of the file, which is made, for its owner only, if there is none; its folder must exist.
        settings: whatever decides the texts, as JSON can hold it (`EvolutionSettings.about`).

    Raises:
        JournalError: for a journal of other settings, or a file that is no journal.
    """

    def __init__(self, path: Path | str, settings: Mapping[str, object]) -> None:
        self.path = Path(path)
        self._texts: dict[tuple[str | None, str], str] = {}
        self._waiting = 0
        self._flushed = time.monotonic()
        canonical = json.dumps(settings, sort_keys=True, separators=(",", ":"))
        head = {"evolution_journal": _VERSION, "settings": hashlib.sha256(canonical.encode()).hexdigest()}
        self._file = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        try:
            with naming(self.path):
                os.fchmod(self._file, 0o600)
                self._read(head)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.flush()
        finally:
            os.close(self._file)

    def __len__(self) -> int:
        return len(self._texts)

    def get(self, label: str | None, key: str) -> str | None:
        """The text of a candidate that is finished; None for one that is not."""
        return self._texts.get((label, key))

    def add(self, entry: Entry) -> None:
        """Keeps a finished candidate, whatever stops the process; the next `flush` comes by itself."""
        self._texts[entry.label, entry.key] = entry.text
        self._write(json.dumps(asdict(entry), separators=(",", ":")) + "\n")
        self._waiting += 1
        if self._waiting >= _LINES or time.monotonic() - self._flushed > _SECONDS:
            self.flush()

    def flush(self) -> None:
        """Puts what was added on the disk."""
        if self._waiting:
            with naming(self.path):
                os.fsync(self._file)
            self._waiting = 0
        self._flushed = time.monotonic()

    def _write(self, text: str) -> None:
        data = text.encode()
        with naming(self.path):
            while data:
                data = data[os.write(self._file, data) :]

    def _read(self, head: Mapping[str, object]) -> None:
        """The candidates of earlier calls; cuts off a torn last line."""
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        lines = content[:whole].splitlines()
        if not lines:
            if not json.dumps(head).encode().startswith(content):
                raise JournalError(f"{self.path}: is no journal of an evolution; move it away")
            os.ftruncate(self._file, 0)
            self._write(json.dumps(head) + "\n")
            os.fsync(self._file)
            return
        try:
            first, *rest = (json.loads(line) for line in lines)
            entries = [Entry(**row) for row in rest]
        except (ValueError, TypeError):
            raise JournalError(f"{self.path}: is no journal of an evolution, or was damaged; move it away") from None
        if first != head:
            raise JournalError(
                f"{self.path}: was written with other settings, another writer or another embedder; use those again, "
                "or move the file away to begin anew"
            )
        os.ftruncate(self._file, whole)
        for entry in entries:
            self._texts.setdefault((entry.label, entry.key), entry.text)
