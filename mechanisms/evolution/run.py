"""What the evolutions share: records by label, embedders, what a run reads, and released arrays as ledger values."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from dp_accounting import dp_event
from numpy.typing import ArrayLike, NDArray

from cupel.accounting import validate
from cupel.accounting.ledger.run import Run
from cupel.mechanisms.data.batching import label_indices
from cupel.mechanisms.data.records import Record, check_ids
from cupel.mechanisms.primitives import charged
from cupel.mechanisms.primitives.charged import OtherRunError

INPUTS = "inputs"
"""The stage of a run in which it notes what it reads."""

NO_EVENT = dp_event.NoOpDpEvent()

ByLabel = Mapping[str | None, NDArray[np.float64]]


def check_settings(mechanism: object, names: Sequence[str]) -> None:
    """That the public fields which both evolutions have are possible."""
    labels: object = getattr(mechanism, "labels")  # noqa: B009 - as given: YAML and callers do not keep to the type
    if not isinstance(labels, tuple) or not all(isinstance(label, str) and label for label in labels):
        raise ValueError("labels must be a tuple of texts that are not empty")
    if len(set(labels)) != len(labels):
        raise ValueError("labels must name each label once")
    for name in names:
        validate.integer(minimum=1, **{name: getattr(mechanism, name)})
    for name in ("lookahead", "seed"):
        validate.integer(minimum=0, **{name: getattr(mechanism, name)})
    embedder: object = getattr(mechanism, "embedder")  # noqa: B009
    if not isinstance(embedder, str) or not embedder:
        raise ValueError(f"embedder must be builtin, a folder or a hub id, not {embedder!r}")


def by_label(records: Sequence[Record], labels: Sequence[str]) -> dict[str | None, NDArray[np.int64]]:
    """The indices of the records of each public label, in the order of the list; of all records where it is empty.

    Raises:
        ValueError: for no records, repeated ids, or a record of another label; no record and no label is named.
    """
    if not records:
        raise ValueError("there are no records; give a file or a data set that has some")
    check_ids(records)
    found = label_indices(records, labels)
    names: tuple[str | None, ...] = tuple(labels) or (None,)
    return {name: np.flatnonzero(found == index) for index, name in enumerate(names)}


def inputs_digest(records: Sequence[Record], public: object) -> str:
    """SHA-256 of everything that decides what a resumed run computes. Private.

    Args:
        records: private.
        public: parameters and fingerprints, whose `repr` tells them apart.
    """
    digest = hashlib.sha256(repr(public).encode("utf-8", "surrogatepass"))
    for record in records:
        fields = repr((record.id, record.label, record.text))
        digest.update(hashlib.sha256(fields.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()


def note_inputs(run: Run, digest: str) -> None:
    """Notes what a run reads, so that an interrupted run goes on with the same.

    Raises:
        OtherRunError: where it was begun with something else.
    """
    if charged.noted(run, INPUTS, digest) != digest:
        raise OtherRunError(
            "the interrupted run had other records, another writer, embedder or parameters; a run goes on with the "
            "same ones only: start a new one in a new folder"
        )


def packed(values: ArrayLike) -> str:
    """Numbers for the ledger, without loss: base64 of little-endian float64."""
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode("ascii")


def unpacked(text: str) -> NDArray[np.float64]:
    """The inverse of `packed`, shape (N,)."""
    return np.frombuffer(base64.b64decode(text), dtype="<f8").astype(np.float64)


def vectors_digest(arrays: Mapping[str | None, NDArray[np.floating]]) -> str:
    """SHA-256 of the vectors of each label."""
    digest = hashlib.sha256()
    for label, array in arrays.items():
        digest.update(repr((label, array.shape)).encode("utf-8", "surrogatepass"))
        digest.update(np.ascontiguousarray(array, dtype="<f4").tobytes())
    return digest.hexdigest()
