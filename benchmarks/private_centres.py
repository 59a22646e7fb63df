"""Private centres by noisy Lloyd iterations (DPLloyd), for comparison with public centres.

Each iteration assigns every vector to its nearest centre, computes noisy sums and counts of each cluster, and moves the
centres to the noisy means. Sums and counts are integers and the noise is a discrete Gaussian, so an iteration is
exactly (Δ²/2σ²)-zCDP. zCDP does not add to an ex-post ε, so private centres can only be used with aggregate ``mean``.
In many dimensions the noise of the sums grows with √d; public centres are charged for counts only.

Source: Blum et al., "Practical privacy: the SuLQ framework" (2005), section 3.1; Su et al., "Differentially private
k-means clustering" (2016). The noise: Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy"
(2020), Theorem 14.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from dp_accounting import DpEvent, dp_event

from dpassay.accounting import events
from dpassay.accounting.adjacency import SINGLE_UNITS, Adjacency, Unit
from dpassay.accounting.ledger.entries import AlreadyCommitted, Charge, Commit, Outcome
from dpassay.base import validate
from dpassay.base.arrays import Integers
from dpassay.mechanisms.embedding.embedder import Vectors, unit_rows
from dpassay.mechanisms.primitives.integer_vectors import integer_vectors
from dpassay.mechanisms.primitives.nearest import nearest
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Source

if TYPE_CHECKING:
    from dpassay.accounting.ledger.run import Run

STAGE = "lloyd"
RADIUS = 2**16
"""The largest length of a vector, in integer units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateCentres:
    """The public description of a run.

    Attributes:
        clusters: K.
        dimension: d of the vectors.
        iterations: T.
        rho: ρ of zCDP for all iterations in total.
        adjacency: add_remove or replace_one.
        unit: record or user; each unit gives one vector.
        seed: public, of the initial centres.
    """

    clusters: int
    dimension: int
    iterations: int = 5
    rho: float = 0.1
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    unit: Unit = field(default_factory=Unit)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("clusters", "dimension", "iterations"):
            validate.integer(minimum=1, **{name: getattr(self, name)})
        validate.integer(seed=self.seed)
        validate.positive(rho=self.rho)
        validate.one_of((Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE), adjacency=self.adjacency)
        if not self.unit.is_single:
            raise ValueError(f"unit must be {SINGLE_UNITS} for private centres, not {str(self.unit)!r}")

    @property
    def weight(self) -> int:
        """What a vector adds to its cluster's count, in units of the sums.

        With w = weight/radius, the mean's squared error is about (1 + w²)(d + 1/w²)·σ²/n², minimal at w² = 1/√d.
        """
        return max(1, round(RADIUS * math.pow(self.dimension, -0.25)))

    @property
    def squared_sensitivity(self) -> int:
        """Δ₂² of sums and counts jointly, in squared units.

        A vector of length at most R adds (x, W) to its own cluster: R² + W². Replacing it within a cluster changes the
        sum by at most 2R and no count; moving to another cluster changes both: 2(R² + W²).
        """
        own = RADIUS**2 + self.weight**2
        return own if self.adjacency is Adjacency.ADD_REMOVE else max(4 * RADIUS**2, 2 * own)

    @property
    def scale(self) -> float:
        """σ of the noise in units: the smallest float64 with Δ²/(2σ²) ≤ ρ/T, compared exactly."""
        share, squared = Fraction(self._share), self.squared_sensitivity
        scale = math.sqrt(squared / (2 * self._share)) * (1 - 2**-50)
        while Fraction(squared) > 2 * share * Fraction(scale) ** 2:
            scale = math.nextafter(scale, math.inf)
        return scale

    @property
    def _share(self) -> float:
        return self.rho / self.iterations

    def event(self) -> DpEvent:
        """The event of one iteration, at `adjacency`."""
        return dp_event.ZCDpEvent(self._share)

    def plan(self) -> DpEvent:
        """The event of all iterations; known before any data are read."""
        return events.compose([(self.event(), self.iterations)])

    def fit(self, vectors: Vectors, run: Run, *, source: Source = OS_ENTROPY) -> Vectors:
        """The centres after all iterations; an interrupted run resumes from its committed iterations.

        Args:
            vectors: shape (units, d), rows of length at most 1, each a function of its own unit; private.
            run: of a ledger, begun with `plan()`; the caller finishes it.
            source: of the noise. If it is recorded, the run must say so: ``run.about["noise"] == "recorded"``.

        Returns:
            Shape (K, d), float32, in the unit ball.

        Raises:
            ValueError: if vectors have another dimension, or the run has another plan or source.
        """
        if run.plan != self.plan():
            raise ValueError("the ledger's run was begun with another plan; begin it with this mechanism's plan()")
        if run.about.get("noise", "os") != source.name:
            raise ValueError(f"the source of randomness is {source.name!r}, which the ledger's run does not say")
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            raise ValueError(f"vectors must have {self.dimension} columns, one row for each unit")
        units = integer_vectors(vectors, RADIUS)
        centres = unit_rows(np.random.default_rng(self.seed).normal(size=(self.clusters, self.dimension)))
        for iteration in range(self.iterations):
            noisy = self._released(f"{STAGE}/{iteration}", units, centres, run, source)
            centres = self._moved(centres, noisy)
        return centres

    def statistics(self, units: Integers, centres: Vectors) -> Integers:
        """The exact sums of the vectors of each cluster and, in the last column, weighted counts. Do not release.

        Args:
            units: shape (units, d), of `integer_vectors`.
            centres: shape (K, d), in the unit ball.

        Returns:
            Shape (K, d + 1).
        """
        own = nearest((units / RADIUS).astype(np.float32), centres)  # float32 holds multiples of 2⁻¹⁶ exactly
        rows = np.column_stack([units, np.full(len(units), self.weight, dtype=np.int64)])
        total = np.zeros((self.clusters, self.dimension + 1), dtype=np.int64)
        np.add.at(total, own, rows)
        return total

    def _released(self, key: str, units: Integers, centres: Vectors, run: Run, source: Source) -> Integers:
        shape = (self.clusters, self.dimension + 1)
        known: Outcome | None = run.outcome(key)
        if known is None:
            run.step(charge=Charge(key=key, stage=STAGE, event=self.event()))
            exact = self.statistics(units, centres)
            noisy = exact + source.discrete_gaussian(exact.size, self.scale).reshape(shape)
            try:
                run.step(commit=Commit(key=key, value=noisy.tolist()))
            except AlreadyCommitted as earlier:
                known = earlier.outcome
        return noisy if known is None else np.array(known.value, dtype=np.int64).reshape(shape)

    def _moved(self, centres: Vectors, noisy: Integers) -> Vectors:
        """Noisy means, projected into the unit ball; a centre whose noisy count is below one vector stays."""
        counts = noisy[:, -1:] / self.weight
        means = noisy[:, :-1] / RADIUS / np.maximum(counts, 1.0)
        lengths = np.sqrt(np.square(means).sum(axis=1, keepdims=True))
        return np.where(counts >= 1, means / np.maximum(lengths, 1.0), centres).astype(np.float32)
