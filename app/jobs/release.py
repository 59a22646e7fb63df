"""Releases a finished run: writes a folder that may be published, from the ledger alone.

Public facts decide whether a run may be released: the plan, the a-priori bound, the claim. A verdict depends on attacks
on the private data, so it does not decide. There is one exception, which the released page states: if an audit
contradicted the run's own events, the run did not do what its ledger says, and it is not released.
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

from dpassay import __version__
from dpassay.accounting.ledger.entries import LedgerError
from dpassay.accounting.ledger.evidence import without_proof
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run
from dpassay.accounting.ledger.run_files import LEDGER, open_ledger
from dpassay.base.errors import InputError, input_errors, naming
from dpassay.base.outputs import real_path
from dpassay.base.private_files import PRIVATE, name_instead, one_process, remove_empty, sync, write_atomically
from dpassay.base.signing import SigningKey
from dpassay.generators.documents import Documents
from dpassay.generators.registry import mechanism_in_words
from dpassay.jobs.verdict_history import RecordedVerdict, recorded
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY
from dpassay.reports.assay import Output
from dpassay.reports.certificate import CERTIFICATE, certificate_of, write_certificate
from dpassay.reports.claim import prefix_of
from dpassay.reports.exports import NIST, REGISTRY, nist_answers, registry_entry
from dpassay.reports.html import render_release
from dpassay.reports.release import Accepted, Release, claim_text

REPORT, DOCUMENT, CLAIM = "report.html", "report.json", "claim.json"

RELEASED = (
    "That this run was released says that no audit contradicted its events: one bit, which depends on the private data "
    "and is charged nowhere."
)
LONGEST_REASON = 500


@dataclass(frozen=True)
class Released:
    """A release that was made.

    Attributes:
        folder: may be published.
        run: name of the run in the ledger.
        output: number and lengths of the documents.
        unfinished: how many more were begun and not finished; None if not known.
        files: name → SHA-256.
        accepted: the reason that was given if the proof falls short of the claim; else None.
        head: head of the ledger, as printed on the page.
        anchored: whether an anchor of the ledger was found, which detects an older or rewritten file.
        key: the public key by which the certificate is signed; None if it is not.
    """

    folder: Path
    run: str
    output: Output
    unfinished: int | None
    files: dict[str, str]
    accepted: str | None
    head: str
    anchored: bool
    key: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The release as plain JSON types."""
        return {**dataclasses.asdict(self), "folder": str(self.folder), "output": self.output.model_dump(mode="json")}


def release(
    folder: str | Path,
    output: str | Path,
    *,
    accept: str | None = None,
    run: str | None = None,
    anchor: Path | None = None,
    key: Path | None = None,
) -> Released:
    """Releases a finished run into a new folder, with a certificate.

    Args:
        folder: written by `dpassay assay`.
        output: folder of the release; it must not exist, or be empty.
        accept: why a run whose proof falls short of its claim is released; public.
        run: name of the run, if the ledger holds several.
        anchor: file of the last known heads of ledgers; None for the one in the user's state folder.
        key: file of the key that signs the certificate, as `new_key` makes it; None for no signature.

    Raises:
        InputError: if the run may not be released, or a file cannot be read or written.
    """
    folder, output = Path(folder), Path(output)
    ledger = folder / PRIVATE / LEDGER
    if not ledger.exists():
        raise InputError(
            f"{folder}: holds no run; release expects the folder that `dpassay assay` wrote, and there is no {ledger}"
            f"{name_instead(folder)}"
        )
    check_output(output, folder)
    reason = None if accept is None else _printable_reason(accept)
    signer = None if key is None else SigningKey.read(key)
    with one_process(folder / PRIVATE), open_ledger(ledger, anchor) as opened:
        if anchor is not None and not opened.anchored:
            raise InputError(f"{anchor}: has no head of {ledger}; name the anchor file that its run was made with")
        with input_errors():
            chosen = _run_of(opened, run)
            page, documents = releasable_of(chosen, opened.head, reason)
        with _new_folder(output) as partial:
            created = datetime.now(UTC).isoformat(timespec="seconds")
            files = _write(partial, page, documents, created, signer)
            chosen.record_release(
                {
                    "accepted": reason,
                    "created": created,
                    "files": files,
                    "shortfalls": page.shortfalls,
                    "version": __version__,
                }
            )
        anchored = opened.anchored
    assert page.output is not None
    return Released(
        output,
        chosen.name,
        page.output,
        page.unfinished,
        files,
        reason,
        page.ledger.head,
        anchored,
        None if signer is None else signer.public,
    )


def releasable_of(run: Run, head: str, accept: str | None = None) -> tuple[Release, Documents]:
    """The page and the documents of a run in a verified ledger with this head; an `InputError` if it has none."""
    documents, history = _documents_and_verdicts(run)
    last = history[-1]
    if last.past.documents != documents.sha256:
        raise InputError(f"run {run.name!r}: its last verdict is about other documents; run dpassay assay again")
    known = last.public.output
    output = documents.output(
        whole=known is not None and known.complete is not None,
        ends=known.ends if known is not None else "",
        prefix=prefix_of(last.public.claim),
    )
    if output.documents == output.empty:
        raise InputError(
            f"run {run.name!r}: holds no complete document with text, so there is nothing to release; give documents "
            "more tokens to end in (private inference: parameters.tokens and document_tokens), and make a new run in a "
            "new folder, which is charged anew"
        )
    if any(item.past.contradictions for item in history):
        raise InputError(
            f"run {run.name!r}: an audit contradicted the run's own events, so it did not do what its ledger says; it "
            "is not released. See the private report"
        )
    page = last.public
    if page.best_upper is not None and without_proof([item.public.model_dump(mode="json") for item in history]):
        raise InputError(
            f"run {run.name!r}: an earlier report certifies no bound, and the last one does not weigh it; run dpassay "
            "assay again"
        )
    if not page.ledger.planned:
        raise InputError(f"run {run.name!r}: the events charged differ from the plan; it is not released")
    accepted = _accepted(run, page.shortfalls, accept)
    changes = {
        "accepted": accepted,
        "output": output,
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


def _documents_and_verdicts(run: Run) -> tuple[Documents, list[RecordedVerdict]]:
    """The documents of a run and the verdicts on it; an `InputError` if it lacks one, or its noise is recorded."""
    where = f"run {run.name!r}: "
    if not run.finished:
        raise InputError(f"{where}is not finished; run dpassay assay again, which resumes it")
    if run.about.get("noise") != OS_ENTROPY.name:
        raise InputError(
            f"{where}its noise was recorded, so it protects nobody; a run with recorded noise is never released"
        )
    documents = Documents.committed(run)
    if documents is None:
        raise InputError(
            f"{where}has no documents to release: it is a declaration of what ran elsewhere, or an old version of "
            "dpassay, which did not commit documents, finished it; then run it anew"
        )
    history = recorded(run)
    if not history:
        raise InputError(f"{where}has no verdict yet; run dpassay assay first")
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


def _printable_reason(reason: str) -> str:
    """The reason on one line, if it can be printed."""
    words = " ".join(reason.split())
    if not words or len(words) > LONGEST_REASON or not words.isprintable():
        raise InputError(f"--accept: must be a reason of 1 to {LONGEST_REASON} characters that can be printed")
    return words


def check_output(output: Path, folder: Path) -> None:
    """Checks that the folder of a release is new or empty, and not in the private folder of the run."""
    with input_errors():
        if output.is_symlink() or (output.exists() and (not output.is_dir() or any(output.iterdir()))):
            raise InputError(f"{output}: exists and is not empty; name a new folder with -o")
        if real_path(folder / PRIVATE) in real_path(output).parents:
            raise InputError(f"{output}: lies in the private folder of the run; name another folder with -o")


def _write(
    folder: Path, page: Release, documents: Documents, created: str, signer: SigningKey | None
) -> dict[str, str]:
    """Writes all files of a release, the certificate of the others last; their SHA-256."""
    mechanism = mechanism_in_words(page.claim)
    documents.write(folder, 0o644)
    for name, content in {
        CLAIM: claim_text(page.claim),
        REPORT: render_release(page, mechanism),
        DOCUMENT: page.model_dump_json(by_alias=True, indent=2) + "\n",
        REGISTRY: registry_entry(page, mechanism, created[:10]),
        NIST: nist_answers(page, mechanism),
    }.items():
        write_atomically(folder / name, content, 0o644)
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
    certificate = certificate_of(page, files, created, None if signer is None else signer.public)
    with input_errors(f"{CERTIFICATE}: "):
        text = write_certificate(certificate, signer)
    write_atomically(folder / CERTIFICATE, text, 0o644)
    sync(folder)
    return {**files, CERTIFICATE: hashlib.sha256(text.encode("utf-8")).hexdigest()}


@contextlib.contextmanager
def _new_folder(output: Path) -> Iterator[Path]:
    """A temporary folder that is renamed to `output` after the block, or removed if the block fails."""
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
    """Removes temporary folders of killed releases to the same output."""
    left = re.compile(rf"\.{re.escape(output.name)}\.[0-9a-f]{{8}}\.partial")
    with contextlib.suppress(OSError):  # they do no harm
        for path in output.parent.iterdir():
            if left.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)
