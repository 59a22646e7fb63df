"""Which secret occurs in which record, and the budget of each secret; never the text of a secret."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from dpassay.accounting.guarantees import SecretProtection
from dpassay.base.arrays import Bools, Integers


@dataclass(frozen=True, slots=True)
class DetectedSecrets:
    """The result of one source of secrets: its kind, ``list``, ``pattern``, ``quantile`` or ``presidio``, and the
    numbers of secrets that it names, of records in which it found at least one, of pairs of a secret and a record that
    holds it, and of secrets in no record."""

    kind: str
    secrets: int
    records: int
    occurrences: int
    nowhere: int


@dataclass(frozen=True, eq=False)
class Incidence:
    """Which of m secrets occurs in which of n records, with each secret's budget.

    Secret protection treats places as public: everything here is public, including the order of the rows
    (`find_secrets` orders them by place). The values of the secrets are protected, and none is stored.

    Attributes:
        matrix: E[j, i] is whether secret j is in record i; bool, shape (m, n), sorted and without stored zeros.
        budgets: the distinct (p, r) of the secrets, each with p < r.
        group: the index of each secret's budget; int64, shape (m,).
        detected: what each source found, in the order of the sources.
        texts: `texts_digest` of the records, in their order, if known. It depends on the secrets, so it is private: it
            stays in memory, and is not part of the fingerprint.
    """

    matrix: csr_array
    budgets: tuple[SecretProtection, ...]
    group: Integers
    detected: tuple[DetectedSecrets, ...] = ()
    texts: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        matrix = csr_array(self.matrix).astype(np.bool_)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        group = np.array(self.group, dtype=np.int64)
        if group.shape != (matrix.shape[0],):
            raise ValueError(f"group must have one index for each of {matrix.shape[0]} secrets, not {group.shape}")
        if group.size and not 0 <= group.min() <= group.max() < len(self.budgets):
            raise ValueError(f"group must have indices of the {len(self.budgets)} budgets")
        for budget in self.budgets:
            if budget.p >= budget.r:
                raise ValueError(f"r must be above p, since no noise achieves r ≤ p (p={budget.p}, r={budget.r})")
        group.flags.writeable = False
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "group", group)

    @property
    def secrets(self) -> int:
        """Number of secrets m, including those found nowhere."""
        return int(self.matrix.shape[0])

    @property
    def records(self) -> int:
        """Number of records n."""
        return int(self.matrix.shape[1])

    @cached_property
    def private(self) -> Bools:
        """Which records hold a secret, shape (n,). The others are public and used without noise."""
        private = np.zeros(self.records, dtype=np.bool_)
        private[self.matrix.indices] = True
        private.flags.writeable = False
        return private

    @cached_property
    def occurrences(self) -> Integers:
        """The number of records that hold each secret, shape (m,)."""
        occurrences = np.diff(self.matrix.indptr).astype(np.int64)
        occurrences.flags.writeable = False
        return occurrences

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of places and budgets, in hexadecimal: of everything that a release depends on except the records.

        It excludes the text of the secrets. Places and budgets are public, so whoever has a hash that covers a value
        too could try every 5-digit key until the hash fits.
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
