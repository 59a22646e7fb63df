"""The wrapper of dpassay: `dpassay verify`, and `dpassay account` by its certified accountant."""

from __future__ import annotations

import math
import sys
from pathlib import Path

from protocol import Rejected, Tool, main, python

import dpassay
from dpassay.base.errors import InputError


def versions() -> str:
    """The program's name and version."""
    return f"dpassay {dpassay.__version__}, {python()}"


def verify(folder: Path, key: str, ledger: str) -> str:
    """What `dpassay verify` says of a release."""
    try:
        return dpassay.verify_release(folder, key=key or None, ledger=ledger or None).in_words(bool(key))[0]
    except InputError as error:
        raise Rejected(str(error)) from None


def epsilon(file: Path, delta: str, adjacency: str) -> str:
    """The certified interval of `lattice`; at δ = 0 the pure ε."""
    pure = float(delta) == 0
    claim = file.suffix == ".yaml"
    try:
        account = dpassay.account(
            file,
            delta=None if pure else float(delta),
            method="basic" if pure else "lattice",
            adjacency=None if claim else adjacency,
        )
    except InputError as error:
        raise Rejected(str(error)) from None
    wanted = [bound for bound in account.bounds if bool(bound.delta) != pure and bound.rigor.may_support]
    if claim and str(account.adjacency) != adjacency:
        raise Rejected(f"the claim is about {account.adjacency}")
    if not wanted:
        return str(math.inf)
    best = min(wanted, key=lambda bound: bound.value)
    return repr(best.value) if best.interval is None else f"{best.interval.lower!r} {best.interval.upper!r}"


TOOL = Tool(versions, verify=verify, epsilon=epsilon)

if __name__ == "__main__":
    sys.exit(main(TOOL))
