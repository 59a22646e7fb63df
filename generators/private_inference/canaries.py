"""Canaries as the records of a run of private inference, for its reconstruction audit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dpassay.accounting.adjacency import Unit
from dpassay.attacks.canaries.reconstruction import PREFIX, Canaries
from dpassay.claims.base import Claim
from dpassay.claims.data import BuiltinData
from dpassay.data.records import Record, with_content_ids
from dpassay.generators.audits import kept


def plays_on_canaries(claim: Claim) -> bool:
    """Whether the claim's own data are canaries, so that the claimed run itself is audited."""
    return "reconstruction" in claim.audits and claim.data == BuiltinData(source="builtin", name="keys")


def kept_canaries(path: Path, candidates: int) -> Canaries:
    """The canaries in a file, which is written first if it is missing; of two processes, the first writes it."""

    def draw() -> dict[str, object]:
        drawn = Canaries.draw(candidates)
        return {"keys": drawn.keys, "included": drawn.included.tolist(), "never": drawn.never}

    body = kept(path, draw)
    return Canaries(tuple(body["keys"]), np.array(body["included"], dtype=np.bool_), tuple(body["never"]))


def canary_records(canaries: Canaries, labels: Sequence[str], unit: Unit) -> list[Record]:
    """A record for each canary that is in the data.

    A canary's label and user depend on its index among *all* candidates, so its coin changes no other record: the
    one-run bound needs a guarantee for each coin by itself.
    """
    rows = [
        (PREFIX + key, labels[index % len(labels)] if labels else None, f"canary {index}" if unit.needs_user else None)
        for index, (key, included) in enumerate(zip(canaries.keys, canaries.included, strict=True))
        if included
    ]
    return with_content_ids(rows)
