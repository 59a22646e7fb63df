"""Shared by the evolutions: records by label, embedders, the digest of a run's inputs, and arrays as ledger values."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpassay.accounting.ledger.entries import Charge
from dpassay.accounting.ledger.run import Run
from dpassay.base.arrays import Floats, Integers
from dpassay.data.batching import label_indices
from dpassay.data.records import Record, check_ids
from dpassay.mechanisms.embedding.embedder import Vectors
from dpassay.mechanisms.primitives import charged
from dpassay.mechanisms.primitives.charged import RunMismatchError
from dpassay.mechanisms.primitives.public_fields import check_labels

INPUTS = "inputs"
"""The ledger stage in which a run commits the digest of its inputs."""

ByLabel = Mapping[str | None, Floats]


def check_settings(labels: object, embedder: object) -> None:
    """Checks the public fields of both evolutions that `EvolutionSettings` does not."""
    check_labels(labels)
    if not isinstance(embedder, str) or not embedder:
        raise ValueError(f"embedder must be builtin, a folder or a hub id, not {embedder!r}")


def by_label(records: Sequence[Record], labels: Sequence[str]) -> dict[str | None, Integers]:
    """The indices of the records of each public label, in the order of `labels`; of all records if it is empty.

    Raises:
        ValueError: if there are no records, ids repeat, or a record has another label; the message names no record and
            no label.
    """
    if not records:
        raise ValueError("there are no records; use a file or a data set with at least one record")
    check_ids(records)
    result = label_indices(records, labels)
    names: tuple[str | None, ...] = tuple(labels) or (None,)
    return {name: np.flatnonzero(result == index) for index, name in enumerate(names)}


def note_inputs(run: Run, records: Sequence[Record], public: object) -> None:
    """Commits the digest of a run's inputs, so that an interrupted run can only be resumed with the same inputs:
    private records, and public parameters and fingerprints by their `repr`.

    Raises:
        RunMismatchError: if the run was begun with other inputs.
    """
    digest = records_digest(records, public)
    mismatch = charged.other_inputs("records, another writer, embedder or parameters")
    charged.note(run, INPUTS, digest, mismatch)


def records_digest(records: Sequence[Record], public: object = ()) -> str:
    """SHA-256 of private records, in their order, and of public values by their `repr`. Private."""
    digest = hashlib.sha256(repr(public).encode("utf-8", "surrogatepass"))
    for record in records:
        fields = repr((record.id, record.label, record.text))
        digest.update(hashlib.sha256(fields.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()


def released_votes(
    run: Run, charge: Charge, candidates: Mapping[str | None, Vectors], draw: Callable[[str | None], str]
) -> dict[str | None, Floats]:
    """The committed noisy votes for the candidates of each label; if there are none, they are charged together and
    drawn, packed, by label. A run that is resumed with other vectors of candidates is refused."""
    digest = _vectors_digest(candidates)
    value = charged.released_value(
        run, charge, lambda: {"candidates": digest, "votes": [draw(label) for label in candidates]}
    )
    if value["candidates"] != digest:
        raise RunMismatchError(
            "the interrupted run's votes are for other candidates: its journal is missing or was changed, or "
            f"{charged.OTHER_VECTORS}"
        )
    return dict(zip(candidates, map(unpacked, value["votes"]), strict=True))


def packed(values: ArrayLike) -> str:
    """An array as text for the ledger, without loss: base64 of little-endian float64."""
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode("ascii")


def unpacked(text: str) -> Floats:
    """The inverse of `packed`, shape (N,)."""
    return np.frombuffer(base64.b64decode(text), dtype="<f8").astype(np.float64)


def _vectors_digest(arrays: Mapping[str | None, NDArray[np.floating]]) -> str:
    """SHA-256 of the vectors of each label."""
    digest = hashlib.sha256()
    for label, array in arrays.items():
        digest.update(repr((label, array.shape)).encode("utf-8", "surrogatepass"))
        digest.update(np.ascontiguousarray(array, dtype="<f4").tobytes())
    return digest.hexdigest()
