"""From a finished run to a folder that may leave: rendered from the ledger, gated by public facts, and recorded.

What goes out is decided by public facts: the plan, the a-priori bound, the claim. A verdict weighs attacks on the
private data, so it never decides. One exception is made, and the released page says so: where an audit contradicted the
run's own events, the run did not do what its ledger says, and nothing of it leaves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cupel import __version__
from cupel.accounting.errors import naming
from cupel.accounting.ledger.entries import LedgerError
from cupel.accounting.ledger.ledger import Ledger
from cupel.accounting.ledger.run import Run
from cupel.errors import InputError, input_errors
from cupel.io.documents import Documents
from cupel.io.outputs import real_path
from cupel.io.run_files import LEDGER, PRIVATE, one_process, open_ledger, remove_empty, sync, write_atomically
from cupel.jobs.verdict_history import Recorded, recorded
from cupel.mechanisms.primitives.randomness import OS_ENTROPY
from cupel.reports.html import render_release
from cupel.reports.release import Accepted, Release, claim_text

REPORT, CLAIM = "report.html", "claim.json"

RELEASED = (
    "That this run was released says that no audit contradicted its events: one bit, which depends on the private data "
    "and is charged nowhere."
)
LONGEST_REASON = 500


@dataclass(frozen=True)
class Released:
    """A release that was made.

    Attributes:
        folder: that may leave.
        run: its name in the ledger.
        files: name → SHA-256.
        accepted: the reason that was given, where the proof falls short of the claim.
        head: of the ledger, as the page prints it.
        anchored: whether the ledger is known elsewhere, so that an older or a rewritten file would have shown.
    """

    folder: Path
    run: str
    files: dict[str, str]
    accepted: str | None
    head: str
    anchored: bool

    def to_json(self) -> dict[str, Any]:
        """In JSON types."""
        return {**dataclasses.asdict(self), "folder": str(self.folder)}


def release(
    folder: str | Path,
    output: str | Path,
    *,
    accept: str | None = None,
    run: str | None = None,
    anchor: Path | None = None,
) -> Released:
    """Makes the folder of a finished run that may leave.

    Args:
        folder: that `cupel assay` wrote.
        output: the folder to make; it must not exist, or be empty.
        accept: why a run whose proof falls short of its claim is released; public.
        run: its name, where the ledger holds several.
        anchor: the file that knows how far the ledger was before; None for the one in the user's state folder.

    Raises:
        InputError: where the run may not be released, or cannot be.
    """
    folder, output = Path(folder), Path(output)
    ledger = folder / PRIVATE / LEDGER
    if not ledger.exists():
        raise InputError(f"{folder}: holds no run, {ledger} is not there; name a folder that cupel assay wrote")
    check_output(output, folder)
    reason = None if accept is None else _checked(accept)
    with one_process(folder / PRIVATE), open_ledger(ledger, anchor) as opened:
        if anchor is not None and not opened.anchored:
            raise InputError(f"{anchor}: knows nothing of {ledger}; name the file that its run was anchored in")
        with input_errors():
            chosen = _run_of(opened, run)
            page, documents = releasable_of(chosen, opened.head, reason)
        with _appearing(output) as partial:
            files = _write(partial, page, documents)
            chosen.record_release(_record(page, files))
        anchored = opened.anchored
    return Released(output, chosen.name, files, reason, page.ledger.head, anchored)


def releasable_of(run: Run, head: str, accept: str | None = None) -> tuple[Release, Documents]:
    """What of a run may leave: its page, and its documents.

    Args:
        run: in its open ledger, whose chain was verified.
        head: of the ledger.
        accept: why it is released where the proof falls short of the claim.

    Raises:
        InputError: where it may not.
    """
    documents, history = _finished(run)
    last = history[-1]
    if last.past.documents != documents.sha256:
        raise InputError(f"run {run.name!r}: its last verdict is about other documents; run cupel assay again")
    if any(one.past.contradictions for one in history):
        raise InputError(
            f"run {run.name!r}: an audit contradicted the run's own events, so it did not do what its ledger says; it "
            "is not released. See the private report"
        )
    page = last.public
    if not page.ledger.planned:
        raise InputError(f"run {run.name!r}: the events charged differ from the plan; it is not released")
    accepted = _accepted(run, page.shortfalls, accept)
    changes = {
        "accepted": accepted,
        "ledger": page.ledger.model_copy(update={"head": head}),
        "side_channels": [*page.side_channels, RELEASED],
    }
    return page.model_copy(update=changes), documents


def _run_of(ledger: Ledger, name: str | None) -> Run:
    names = ledger.runs()
    if name is None and len(names) != 1:
        listed = ", ".join(map(repr, names)) or "no run"
        raise InputError(f"{ledger.path}: holds {listed}" + ("; name one with --run" if names else ""))
    return ledger.run(names[0] if name is None else name)


def _finished(run: Run) -> tuple[Documents, list[Recorded]]:
    """The documents of a run and the verdicts on it.

    Raises:
        InputError: where it is not finished, not to be released, or without a verdict.
    """
    where = f"run {run.name!r}: "
    if not run.finished:
        raise InputError(f"{where}is not finished; run cupel assay again, which resumes it")
    if run.about.get("noise") != OS_ENTROPY.name:
        raise InputError(f"{where}its noise was recorded, so it protects nobody; it is never released")
    documents = Documents.committed(run)
    if documents is None:
        raise InputError(f"{where}was finished by a version of cupel that did not commit documents; run it anew")
    history = recorded(run)
    if not history:
        raise InputError(f"{where}has no verdict yet; run cupel assay first")
    return documents, history


def _accepted(run: Run, shortfalls: list[str], accept: str | None) -> Accepted | None:
    if shortfalls and accept is None:
        raise InputError(
            f'run {run.name!r}: {" ".join(shortfalls)} To release it all the same, say why with --accept "REASON", '
            "which is printed on the released page"
        )
    if accept is not None and not shortfalls:
        raise InputError("--accept: the proof does not fall short of the claim, so there is nothing to accept; drop it")
    return None if accept is None else Accepted(reason=accept)


def _checked(reason: str) -> str:
    """A reason as it may be printed."""
    words = " ".join(reason.split())
    if not words or len(words) > LONGEST_REASON or not words.isprintable():
        raise InputError(f"--accept: must be a reason of 1 to {LONGEST_REASON} characters that can be printed")
    return words


def check_output(output: Path, folder: Path) -> None:
    """That a release can be made there.

    Raises:
        InputError: where something is there, or the place is a private folder.
    """
    with input_errors():
        if output.is_symlink() or (output.exists() and (not output.is_dir() or any(output.iterdir()))):
            raise InputError(f"{output}: exists and is not empty; name a new folder with -o")
        if real_path(folder / PRIVATE) in real_path(output).parents:
            raise InputError(f"{output}: lies in the private folder of the run; name another place with -o")


def _write(folder: Path, page: Release, documents: Documents) -> dict[str, str]:
    """Writes all files of a release; their SHA-256."""
    documents.write(folder, 0o644)
    write_atomically(folder / CLAIM, claim_text(page.claim), 0o644)
    write_atomically(folder / REPORT, render_release(page), 0o644)
    sync(folder)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def _record(page: Release, files: dict[str, str]) -> dict[str, Any]:
    return {
        "accepted": None if page.accepted is None else page.accepted.reason,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": files,
        "shortfalls": page.shortfalls,
        "version": __version__,
    }


@contextlib.contextmanager
def _appearing(output: Path) -> Iterator[Path]:
    """A folder beside `output` that gets its name when the block ends well, and is removed otherwise.

    Raises:
        InputError: where a file cannot be written, or the ledger cannot be.
    """
    partial = output.with_name(f".{output.name}.{secrets.token_hex(4)}.partial")
    made = [path for path in output.parents if not os.path.lexists(path)]
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(output)
        partial.mkdir(mode=0o700)
        yield partial
        if output.exists():
            output.rmdir()
        partial.chmod(0o755)
        partial.rename(output)
        sync(output.parent)
    except (OSError, LedgerError) as error:
        with input_errors(), naming(output):
            raise error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        remove_empty(made)


def _remove_leftovers(output: Path) -> None:
    """Removes what a release to this folder that was killed left beside it."""
    left = re.compile(rf"\.{re.escape(output.name)}\.[0-9a-f]{{8}}\.partial")
    with contextlib.suppress(OSError):  # it is in nobody's way
        for path in output.parent.iterdir():
            if left.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)
