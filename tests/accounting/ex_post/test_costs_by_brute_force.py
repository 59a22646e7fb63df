"""Costs of small batches against every removal, corner and odd row added or exchanged, with whole numbers of 1000 bits.

Half of the batches are centred at public logits, which are then added to every median.

The other tests of costs use one clip and one temperature. Here both go to their limits, rows have ties, −inf, equal
entries and large offsets, and the batch is given in each of the ways that leave out columns at the bottom of the clip.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from property_settings import number

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.ex_post import clipped_rows
from dpassay.accounting.ex_post.clipped_rows import (
    GRID,
    LogitRows,
    StepRows,
    centred_steps,
    clip_logits,
    clip_steps,
)
from dpassay.accounting.ex_post.medians import Medians, slack
from dpassay.mechanisms.private_inference import device_rows
from dpassay.mechanisms.private_inference.device_rows import CentredDeviceRows, DeviceRows

Steps = Sequence[int]
CLIPS = [2.0**-24, 0.3, 6.0, 9.99999999, 64.0]  # two of them between two steps of the grid
TAILS = [2.0**-24, 0.7, 12.0, 32.0]
RANGES = [0.01, 1.0, 8.0, 40.0, 599.0]  # of all logits of a median, over τ
SIZES = range(8)
KINDS = ["random", "tied", "peaked", "extreme"]
_DIGITS = 330  # enough to give e⁻⁶⁰⁰ another 40 and more


@dataclass
class Case:
    """A batch of raw logits, its public fallback, and the law's parameters; with a tail, rows are centred at the
    fallback."""

    logits: NDArray[np.float32]
    fallback: NDArray[np.float32]
    clip: float
    temperature: float
    tail: float | None = None

    @property
    def limit(self) -> int:
        return math.floor(Fraction(self.clip) * 2**24)

    @property
    def public(self) -> Steps:
        """What is added to every median, in whole steps."""
        if self.tail is None:
            return [0] * len(self.fallback)
        return self.clipped(self.fallback.tolist(), math.floor(Fraction(self.tail) * 2**24))

    @property
    def span(self) -> float:
        """The largest difference of two logits of a median, in units of logits."""
        return 2 * self.clip + (max(self.public) - min(self.public)) * GRID

    def row(self, row: Sequence[float]) -> Steps:
        """One row of the batch in whole steps, from the definition."""
        if self.tail is None:
            return self.clipped(row, self.limit)
        pairs = list(zip(self.clipped(row, math.floor(Fraction(self.tail) * 2**24)), self.public, strict=True))
        shift = math.floor(Fraction(max(2 * z - f for z, f in pairs) + min(z - 2 * f for z, f in pairs), 2))
        return [min(max(z - f - shift, -self.limit), self.limit) for z, f in pairs]

    @staticmethod
    def clipped(row: Sequence[float], limit: int) -> Steps:
        """max(−c, z − max z + c) in whole steps, from the definition."""
        top = Fraction(max(row))
        return [-limit if z == -math.inf else max(-limit, round((Fraction(z) - top) * 2**24) + limit) for z in row]


def case(kind: str, size: int, rng: np.random.Generator) -> Case:
    clip, vocabulary = float(rng.choice(CLIPS)), int(rng.integers(1, 7))
    logits = rng.normal(scale=clip, size=(size + 1, vocabulary))
    if kind == "tied":
        logits = rng.choice([-2.5 * clip, -2 * clip, -clip, 0.0], size=logits.shape)
    elif kind == "peaked":  # most columns are at the bottom of the clip in most rows
        logits[:, 1:] -= 6 * clip * (rng.random((size + 1, vocabulary - 1)) < 0.9)
    elif kind == "extreme":
        logits = np.round(logits * 2**24) / 2**24 + rng.choice([0.0, 1e3, -1e6, 1e30], size=(size + 1, 1))
        logits[rng.random(logits.shape) < 0.3] = -np.inf
        logits[:, rng.integers(vocabulary)] = rng.choice([-50.0, 0.0])
    single, tail = logits.astype(np.float32), float(rng.choice(TAILS)) if rng.random() < 0.5 else None
    given = Case(single[:size], single[size], clip, 1.0, tail)
    return replace(given, temperature=given.span / float(rng.choice(RANGES)))


# --- the oracle: medians of whole numbers, weights as whole multiples of 2⁻¹⁰⁰⁰


class Oracle:
    def __init__(self, given: Case) -> None:
        self.temperature, self.limit = given.temperature, given.limit
        self.rows = [given.row(row) for row in given.logits.tolist()]
        self.public = given.public
        self.fallback = self.public if given.tail else given.clipped(given.fallback.tolist(), given.limit)
        self._weights: dict[int, int] = {}

    def weight(self, half_steps: int) -> int:
        """exp((z − peak)/τ) for z in half steps, where peak is the largest logit of any median."""
        if half_steps not in self._weights:
            with mpmath.workdps(_DIGITS):
                z = mpmath.mpf(half_steps - 2 * (self.limit + max(self.public))) / 2**25
                self._weights[half_steps] = int(mpmath.exp(z / mpmath.mpf(self.temperature)) * 2**1000)
        return self._weights[half_steps]

    def median(self, rows: Sequence[Steps]) -> Steps:
        """In half steps, public logits included."""
        if not rows:
            return [2 * z for z in self.fallback]
        columns = map(sorted, zip(*rows, strict=True))
        middle = [column[len(rows) // 2] + column[(len(rows) - 1) // 2] for column in columns]
        return [z + 2 * f for z, f in zip(middle, self.public, strict=True)]

    def unlikelihoods(self, half_steps: Steps) -> list[int]:
        """1/p of every token, times 2²⁰⁰."""
        weights = [self.weight(z) for z in half_steps]
        return [(sum(weights) << 200) // weight for weight in weights]

    def added(self, rng: np.random.Generator) -> list[Steps]:
        """All vectors of ±c, and some of other entries, also those of the batch."""
        width = len(self.fallback)
        corners = [list(row) for row in itertools.product((-self.limit, self.limit), repeat=width)]
        entries = [-self.limit, self.limit, 0, *itertools.chain.from_iterable(self.rows)]
        return [*corners, *(rng.choice(entries, size=width).tolist() for _ in range(4))]

    def neighbours(self, adjacency: Adjacency, added: Sequence[Steps]) -> Iterator[list[Steps]]:
        without = [[*self.rows[:i], *self.rows[i + 1 :]] for i in range(len(self.rows))]
        if adjacency is Adjacency.ADD_REMOVE:
            yield from without
            yield from ([*self.rows, row] for row in added)
        else:
            yield from ([*rest, row] for rest in without for row in added)

    def costs(self, adjacency: Adjacency, added: Sequence[Steps]) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
        """(u⁻, u⁺) of every token."""
        own = self.unlikelihoods(self.median(self.rows))
        others = [self.unlikelihoods(self.median(rows)) for rows in self.neighbours(adjacency, added)]
        return [
            (logarithm(max(there), here), -logarithm(min(there), here))
            for here, *rest in zip(own, *others, strict=True)
            for there in [[here, *rest]]
        ]

    def losses(self, token: int) -> list[mpmath.mpf]:
        own = self.unlikelihoods(self.median(self.rows))[token]
        without = [[*self.rows[:i], *self.rows[i + 1 :]] for i in range(len(self.rows))]
        return [logarithm(self.unlikelihoods(self.median(rows))[token], own) for rows in without]

    def published(self, token: int) -> mpmath.mpf:
        """γ: with a and d for an odd batch, a and b for an even one, and ±c for what a small batch lacks."""
        columns = [sorted(column) for column in zip(*self.rows, strict=True)] or [[]] * len(self.fallback)
        columns = [[-self.limit, *column, self.limit] for column in columns]
        last, reach = len(columns[0]) - 1, len(self.rows) % 2
        low = [2 * (column[last // 2 - reach] + f) for column, f in zip(columns, self.public, strict=True)]
        high = [2 * (column[(last + 1) // 2 + reach] + f) for column, f in zip(columns, self.public, strict=True)]
        middle = self.median(self.rows)
        weights = [[self.weight(z) for z in vector] for vector in (low, middle, high)]
        down = logarithm(weights[1][token] * sum(weights[2]), weights[0][token] * sum(weights[1]))
        up = logarithm(weights[2][token] * sum(weights[1]), weights[1][token] * sum(weights[0]))
        return max(up, down)


def logarithm(numerator: int, denominator: int) -> mpmath.mpf:
    return mpmath.log(mpmath.mpf(numerator) / denominator)


# --- the comparison


@pytest.fixture(autouse=True)
def no_column_is_computed_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default a batch is taken as a whole where half of its columns are live, as in most of these."""
    monkeypatch.setattr(clipped_rows, "MANY_COLUMNS", 1)
    monkeypatch.setattr(device_rows, "MANY_COLUMNS", 1)


def ways(given: Case) -> Iterator[StepRows | LogitRows | DeviceRows | CentredDeviceRows]:
    if given.tail is not None:
        public = clip_steps(given.fallback, given.tail)
        yield StepRows(centred_steps(given.logits, public, given.clip, given.tail), given.clip)
        yield CentredDeviceRows(torch.from_numpy(given.logits.copy()), public, given.clip, given.tail)
        return
    yield StepRows(clip_steps(given.logits, given.clip), given.clip)
    yield LogitRows(given.logits, given.clip)
    yield DeviceRows(torch.from_numpy(given.logits.copy()), given.clip)


def compare(given: Case, rng: np.random.Generator) -> float:
    """Checks all costs of all tokens; the largest excess over the exact cost, in units of `slack`."""
    oracle, worst = Oracle(given), 0.0
    fallback = clip_logits(given.fallback, given.clip) if given.tail is None else None
    public = None if given.tail is None else clip_logits(given.fallback, given.tail)
    batches = [Medians.of_rows(rows, clip=given.clip, fallback=fallback, public=public) for rows in ways(given)]
    assert all(np.array_equal(rows.steps(), np.array(oracle.rows).reshape(rows.shape)) for rows in ways(given))
    error = slack(given.logits.shape[1], given.span / 2, given.temperature)
    with mpmath.workdps(60):
        corners = oracle.added(rng)
        exact = {kind: oracle.costs(kind, corners) for kind in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)}
        for medians, token in itertools.product(batches, range(given.logits.shape[1])):
            assert [round(2 * z / GRID) for z in medians.median] == oracle.median(oracle.rows)
            excess = []
            for kind, costs in exact.items():
                result = medians.costs(token, given.temperature, kind)
                excess += [result.u_minus - costs[token][0], result.u_plus - costs[token][1]]
                excess += [result.gamma - oracle.published(token)]
                if given.tail is not None:  # whatever the rows: 2c/τ, and 4c/τ where one is replaced
                    ends = 2 if kind is Adjacency.ADD_REMOVE else 4
                    # One error is added to the cost, and its own is at most one.
                    assert result.gamma_star <= ends * given.clip / given.temperature + 2 * error
            losses = medians.leave_one_out(token, given.temperature)
            excess += [error + abs(a - b) for a, b in zip(losses, oracle.losses(token), strict=True)]
            assert min(excess) >= 0, (given, token)
            worst = max(worst, float(max(excess)) / error)
    return worst


@pytest.mark.grid("kind", "size")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_costs_are_those_of_the_worst_neighbour(kind: str, size: int) -> None:
    """Never below, and above by at most twice the bound on the float error that is added."""
    rng = np.random.default_rng(size)
    assert max(compare(case(kind, size, rng), rng) for _ in range(number(4, 150))) <= 2
