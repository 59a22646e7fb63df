"""The anchor of a ledger: its head and number of entries, stored in another place than the ledger.

The hash chain has no key, so anyone who can write the file can rewrite all of it, and a restored backup is a valid
chain. Both are detected if the head is known from elsewhere. An anchor file is a JSON object, identity of the
ledger → {"entries", "head"}. The identity is the hash of the first entry, which no other ledger shares.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dpassay.accounting.ledger.entries import LedgerError
from dpassay.base.atomic_file import replacing
from dpassay.base.former_name import FORMER_NAME


class Anchored(NamedTuple):
    """The content of an anchor: the hash of entry number `entries` is `head`."""

    entries: int
    head: str


class Anchor:
    """The anchor of one ledger in a file.

    Attributes:
        file: the file; None if the user has no home.
        source: the file in which `read` found the anchor; version 0.2 wrote another one.
    """

    def __init__(self, identity: str, chosen: Path | None) -> None:
        self.file = chosen or _default_file(identity)
        self.source = self.file
        self._identity = identity
        self._chosen = chosen is not None

    def read(self, *, must_exist: bool = False) -> Anchored | None:
        """The anchored head, or None; a chosen file that must exist and does not is an error, as is one that cannot be
        read.
        """
        if self.file is None:
            return None
        try:
            return self._newest(self.file)
        except FileNotFoundError:
            if self._chosen and (must_exist or not self.file.parent.is_dir()):
                raise LedgerError(f"{self.file}: there is no anchor file here") from None
        except OSError as error:
            if self._chosen:
                raise LedgerError(f"{self.file}: {(error.strerror or str(error)).lower()}") from None
        return None

    def _newest(self, file: Path) -> Anchored | None:
        """The anchor in `file`, or the one that version 0.2 wrote, whichever has more entries."""
        former = None if self._chosen else _default_file(self._identity, FORMER_NAME)
        before = now = None
        if former is not None:
            with contextlib.suppress(OSError):  # one that cannot be read hides no other
                before = _read(former).get(self._identity)
        try:
            now = _read(file).get(self._identity)
        except OSError:
            if before is None:
                raise
        if before is not None and (now is None or before > now):
            self.source = former
            return before
        return now

    def advance(self, to: Anchored) -> bool:
        """Writes an anchor, unless one with more entries exists; whether there is one afterwards.

        A file that cannot be written, or is no longer an anchor file, is left unchanged.
        """
        if self.file is None:
            return False
        try:
            _make_private_folder(self.file.parent)
            with _locked(self.file.parent):
                known = _read(self.file) if self.file.exists() else {}
                if self._identity not in known or known[self._identity].entries < to.entries:
                    body = {name: anchor._asdict() for name, anchor in {**known, self._identity: to}.items()}
                    with replacing(self.file) as new:
                        new.write(json.dumps(body, sort_keys=True).encode())
        except (OSError, LedgerError):
            return False
        return True


def _default_file(identity: str, name: str = "dpassay") -> Path | None:
    """``dpassay/anchors/<identity>.json`` in the user's state folder."""
    with contextlib.suppress(RuntimeError):  # no home
        return _state_folder() / name / "anchors" / f"{identity}.json"
    return None


def _state_folder() -> Path:
    if chosen := os.environ.get("XDG_STATE_HOME"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path.home() / ".local" / "state"


_LARGEST = 2**28  # bytes; an anchor has about 150


def _read(file: Path) -> dict[str, Anchored]:
    """All anchors of a file; a `LedgerError` if it is not an anchor file."""
    try:
        with file.open("rb") as opened:
            results = json.loads(opened.read(_LARGEST))  # a longer file is cut and fails to parse
        anchors = {identity: Anchored(**anchor) for identity, anchor in results.items()}
    except (AttributeError, RecursionError, TypeError, ValueError):
        anchors = {"": Anchored(0, "")}
    numbers = [anchor.entries for anchor in anchors.values()]
    hashes = [*anchors, *(anchor.head for anchor in anchors.values())]
    if not all(type(number) is int and number > 0 for number in numbers) or not all(map(_is_hash, hashes)):
        raise LedgerError(f"{file}: this file is damaged or holds no anchors of ledgers; restore it, or choose another")
    return anchors


def _is_hash(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(r"[0-9a-f]{64}", text) is not None


def _make_private_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks the folder, so that one process writes at a time. Without locks an anchor may be older, but never wrong."""
    if os.name != "posix":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
