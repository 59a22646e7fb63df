"""Where secrets occur: which secret is in which record, and what each may cost. Places only, never a secret's text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cupel.accounting.guarantees import SecretProtection


@dataclass(frozen=True, slots=True)
class Found:
    """What one source of secrets found.

    Attributes:
        kind: ``list``, ``pattern``, ``quantile`` or ``presidio``.
        secrets: how many secrets it names.
        records: records in which it found at least one.
        occurrences: pairs of a secret and a record in which it was found.
        nowhere: secrets it names and found in no record.
    """

    kind: str
    secrets: int
    records: int
    occurrences: int
    nowhere: int


@dataclass(frozen=True, eq=False)
class Incidence:
    """Which of m secrets occurs in which of n records, with each secret's budget.

    Places are public in secret protection: all that is kept here may be known to everybody, the order of the rows
    included (`find_secrets` puts them in the order of their places). The values of the secrets are what is protected,
    and none is kept.

    Attributes:
        matrix: E[j, i] says whether secret j is in record i; bool, shape (m, n), sorted and without stored zeros.
        budgets: the different (p, r) of the secrets, p < r each.
        group: of each secret, its budget's index; int64, shape (m,).
        found: what each source found, in the order of the sources.
        texts: `texts_digest` of the records, in their order, where they are known. It depends on the secrets, so it is
            private: it stays in memory, and is no part of the fingerprint.
    """

    matrix: csr_array
    budgets: tuple[SecretProtection, ...]
    group: NDArray[np.int64]
    found: tuple[Found, ...] = ()
    texts: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        matrix = csr_array(self.matrix).astype(np.bool_)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        group = np.array(self.group, dtype=np.int64)
        if group.shape != (matrix.shape[0],):
            raise ValueError(f"every secret has one budget: {matrix.shape[0]} secrets, budgets of shape {group.shape}")
        if group.size and not 0 <= group.min() <= group.max() < len(self.budgets):
            raise ValueError(f"a secret's budget is none of the {len(self.budgets)} given")
        for budget in self.budgets:
            if budget.p >= budget.r:
                raise ValueError(f"r must be above p, or no noise is enough (p={budget.p}, r={budget.r})")
        group.flags.writeable = False
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "group", group)

    @property
    def secrets(self) -> int:
        """Number of secrets m, those found nowhere included."""
        return int(self.matrix.shape[0])

    @property
    def records(self) -> int:
        """Number of records n."""
        return int(self.matrix.shape[1])

    @cached_property
    def private(self) -> NDArray[np.bool_]:
        """Which records hold a secret, shape (n,). The others are public and used in the clear."""
        private = np.zeros(self.records, dtype=np.bool_)
        private[self.matrix.indices] = True
        private.flags.writeable = False
        return private

    @cached_property
    def occurrences(self) -> NDArray[np.int64]:
        """In how many records each secret is, shape (m,); 0 for one found nowhere, n for one that is everywhere."""
        occurrences = np.diff(self.matrix.indptr).astype(np.int64)
        occurrences.flags.writeable = False
        return occurrences

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of places and budgets, in hexadecimal: of all that a release depends on besides the records.

        The text of the secrets is left out. Places and budgets are public, so whoever has a hash that covers a value as
        well could try every 5-digit key until the hash fits.
        """
        digest = hashlib.sha256(b"cupel.incidence\0")
        digest.update(f"{self.secrets},{self.records}".encode())
        for budget in self.budgets:
            digest.update(f";{float(budget.p).hex()},{float(budget.r).hex()}".encode())
        for part in (self.group, self.matrix.indptr, self.matrix.indices):
            digest.update(part.astype("<i8").tobytes())
        return digest.hexdigest()


def texts_digest(texts: Iterable[str]) -> str:
    """SHA-256 of texts in their order, in hexadecimal."""
    digest = hashlib.sha256(b"cupel.texts\0")
    for text in texts:
        digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()
