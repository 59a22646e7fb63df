"""Verifies a release by its certificate, without the private data and without running anything."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent

from dpassay.accounting.events import from_json
from dpassay.accounting.ledger.entries import GENESIS
from dpassay.base.errors import InputError, input_errors
from dpassay.base.private_files import name_instead
from dpassay.base.signing import is_public_key
from dpassay.jobs.verify_ledger import recorded_releases
from dpassay.reports.certificate import CERTIFICATE, Certificate, read_certificate

_LARGEST = 2**28  # bytes of a certificate
_LONGEST = 255  # bytes of a file name


@dataclass(frozen=True)
class Verified:
    """A release that is as its certificate says.

    Attributes:
        folder: of the release.
        certificate: what it certifies.
        in_ledger: whether its ledger was given, holds the certified head, and records this release.
    """

    folder: Path
    certificate: Certificate
    in_ledger: bool

    @property
    def key(self) -> str | None:
        """The public key of whoever signed; None if nobody did."""
        return self.certificate.key

    @property
    def event(self) -> DpEvent | None:
        """The certified composition; None if the events that were charged differ from the plan."""
        composition = self.certificate.composition
        return None if composition is None else from_json(composition)

    def in_words(self, key_was_given: bool) -> list[str]:
        """What was checked, and what the certificate says, a line each."""
        body, others = self.certificate, len(self.certificate.files)
        recorded = ", and its ledger records it" if self.in_ledger else ""
        lines = [f"{self.folder}: the certificate is whole, and all {others} files are as it says{recorded}."]
        if self.key is None:
            lines.append("It is not signed, so whoever can write the folder can replace all of it.")
        elif key_was_given:
            lines.append(f"Signed by {self.key}.")
        else:
            lines.append(f"Signed by {self.key}: compare it with the key of the publisher, or give it as --key.")
        return [*lines, f"Claim {body.name}: {body.guarantee}.", body.sentence]

    def to_json(self) -> dict[str, Any]:
        """The certificate as plain JSON types, and what it was checked against."""
        body = self.certificate.model_dump(mode="json")
        return {"folder": str(self.folder), "in_ledger": self.in_ledger, "certificate": body}


def verify_release(
    folder: str | Path,
    *,
    key: str | None = None,
    ledger: str | Path | None = None,
    anchor: str | Path | None = None,
) -> Verified:
    """Verifies the certificate of a release, then its files, then its ledger if that is given.

    Args:
        folder: made by `dpassay release`.
        key: the public key that must have signed, 64 hexadecimal digits; None for any, or for no signature.
        ledger: of the run, or its export; private, so that only its owner has it.
        anchor: file of the last known heads of ledgers; None for the one in the user's state folder.

    Raises:
        InputError: one line that names the first file that is not as certified, and says why.
    """
    folder, path = Path(folder), Path(folder) / CERTIFICATE
    if key is not None and not is_public_key(key):
        raise InputError("--key must be a public key, the 64 hexadecimal digits that `dpassay key new` printed")
    if anchor is not None and ledger is None:
        raise InputError("--anchor: goes with --ledger")
    if path.is_symlink():
        raise InputError(f"{path}: is a link; a release holds the files themselves")
    if not path.is_file():
        raise InputError(
            f"{folder}: holds no {CERTIFICATE}; name a folder that `dpassay release` made{name_instead(folder)}"
        )
    with input_errors():
        with path.open("rb") as file:
            content = file.read(_LARGEST)
        certificate = _read(path, content, key)
        _check_files(folder, certificate.files)
    if ledger is not None:
        files = {**certificate.files, CERTIFICATE: hashlib.sha256(content).hexdigest()}
        head = certificate.ledger
        known = [] if head == GENESIS else recorded_releases(ledger, expect=head, anchor=anchor)  # zeros: no entry's
        if files not in known:
            raise InputError(f"{ledger}: does not record this release: the end of it was cut off, or it is another one")
    return Verified(folder, certificate, ledger is not None)


def _read(path: Path, content: bytes, key: str | None) -> Certificate:
    try:
        return read_certificate(content, key)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _check_files(folder: Path, certified: Mapping[str, str]) -> None:
    """Checks that the folder holds the certified files and no other; the first that differs is named."""
    for name, digest in sorted(certified.items()):
        path = folder / name
        if not _is_name(name):
            raise InputError(f"{folder / CERTIFICATE}: names {name[:_LONGEST]!r}, which is no file of a release")
        if path.is_symlink():
            raise InputError(f"{path}: is a link; a release holds the files themselves")
        if not path.is_file():
            raise InputError(f"{path}: is missing, and the certificate names it")
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise InputError(f"{path}: was changed or exchanged: its SHA-256 is not the certified one")
    for path in sorted(folder.iterdir()):
        if path.name not in certified and path.name != CERTIFICATE:
            raise InputError(f"{path}: is not in the certificate; it is no part of the release")


def _is_name(name: str) -> bool:
    """Whether a file of a release may have this name: on no system a path, and not that of the certificate."""
    return name not in ("", ".", "..", CERTIFICATE) and not set(name) & set("/\\\0") and len(name.encode()) <= _LONGEST
