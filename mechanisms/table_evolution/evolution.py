"""The evolution of rows: which candidates are voted for in each round, and what becomes of the votes.

1. *Rounds about single columns.* Candidates are cells of a column's domain; cells with many votes are divided into
   smaller ones for the next round. So single values that are frequent become candidates of their own, and the rest of
   a wide domain stays coarse.
2. *Two rounds about pairs of columns.* Cells with few votes are joined, so that a pair of columns has few candidates.
   The first round has the same noise for all pairs. In the second one, pairs of which the first showed that they
   depend on each other have less noise.
3. *Rows evolve* until their votes are those that were released (`population`).

Everything here but `ask` is a function of public numbers and of released votes, so it costs no privacy.

Source: Xie et al., "Differentially Private Synthetic Data via Foundation Model APIs 2: Text" (2024), for private
evolution by votes; Zhang et al., "PrivSyn: Differentially Private Data Synthesis" (2021), for noise that follows a
measured dependence of columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dpassay.base.arrays import Floats, Integers
from dpassay.mechanisms.table_evolution import candidates as cells
from dpassay.mechanisms.table_evolution.candidates import ColumnCandidates, ColumnDomain
from dpassay.mechanisms.table_evolution.estimates import ColumnVotes, column_counts, margins, pair_counts, shrunk
from dpassay.mechanisms.table_evolution.population import Pair, Population, first_population, values_of
from dpassay.mechanisms.table_evolution.votes import TableView, VotesGrid, votes_grids

SEARCH, COLUMNS, FIRST_PAIRS, LAST_PAIRS = 0.1, 0.3, 0.1, 0.5
"""Shares of the precision: of all rounds about columns but the last, of the last, and of the rounds about pairs."""

FULL_SIGNAL, LEAST_WEIGHT = 1000.0, 0.02
"""From which number of rows over the noise multiplier on rounds have these shares. Below, all but that of the last
about columns are smaller in proportion, down to this part. Chosen on public tables."""

MAX_PAIR_CANDIDATES = 2**19
"""The largest number of candidates of all pairs together."""

WORTH_DIVIDING = 4.0
"""How many standard deviations of noise as many rows a cell has that is divided."""

WORTH_PAIRING = 6.0
"""The same of a candidate in pairs, of the noise of their first round."""

_POWER = 2 / 3  # of a view's candidates, or of its dependence: minimises a sum of errors m·σ where Σ 1/σ² is given
_MAX_COUNTED = 40


@dataclass(frozen=True, slots=True)
class TableRound:
    """A round: the candidates of each column, the views in which rows vote, and the noise multiplier of its release."""

    candidates: Sequence[ColumnCandidates]
    views: Sequence[TableView]
    noise_multiplier: float

    def grids(self) -> list[VotesGrid]:
        """The grid of each view's votes."""
        return votes_grids(self.noise_multiplier, [view.weight for view in self.views])

    def sizes(self) -> list[int]:
        """The number of candidates of each view."""
        return [int(np.prod([self.candidates[column].count for column in view.columns])) for view in self.views]


Ask = Callable[[int, TableRound], Sequence[Floats]]
"""``ask(number, round)``: the released votes of each view of a round, in order, each of shape (candidates,)."""


def round_shares(rounds: int, signal: float) -> list[float]:
    """The share of the precision of each round, in order, which add up to 1: of so many about columns, and two about
    pairs; a table of one column has two more about the column.

    Where rows are few beside the noise, the first rounds and those about pairs could not see anything; the last round
    about columns gets nearly all of theirs.

    Args:
        rounds: about columns.
        signal: the public number of rows over the noise multiplier of the run.
    """
    weight = min(1.0, max(LEAST_WEIGHT, signal / FULL_SIGNAL))
    search = [weight * SEARCH / max(1, rounds - 1)] * (rounds - 1)
    columns = COLUMNS + (1 - weight) * (SEARCH + FIRST_PAIRS + LAST_PAIRS)
    shares = [*search, columns, weight * FIRST_PAIRS, weight * LAST_PAIRS]
    return [share / sum(shares) for share in shares]


def proportional(sizes: Sequence[float]) -> list[float]:
    """Weights of views in proportion to sizes to the power of 2/3, which add up to at most 1."""
    powers = np.asarray(sizes, dtype=np.float64) ** _POWER
    weights: list[float] = (powers / (powers.sum() * (1 + 2.0**-48))).tolist()
    return weights


class RowEvolution:
    """One evolution.

    Args:
        domains: of all columns.
        records: the public number of private rows.
        noise_multipliers: of all rounds; the last two are about pairs, if there are any.
        levels: the largest number of candidates of a column in pairs, up to rounding.
        ask: for released votes.
        rng: public.
    """

    def __init__(
        self,
        domains: Sequence[ColumnDomain],
        records: int,
        noise_multipliers: Sequence[float],
        levels: int,
        ask: Ask,
        rng: np.random.Generator,
    ) -> None:
        self.domains, self.records, self.levels, self.ask, self.rng = domains, records, levels, ask, rng
        self.noise = list(noise_multipliers)
        self._column_rounds = len(self.noise) - (2 if len(domains) > 1 else 0)
        last = self.noise[self._column_rounds - 1]
        most = cells.most_first_cells(records, last * math.sqrt(len(domains)))
        self.starts = [cells.first_cells(domain, most) for domain in domains]
        self.counts: list[Floats] = []
        self._votes: list[list[ColumnVotes]] = [[] for _ in domains]

    def rows(self, count: int, generations: int, progress: Callable[[int, int], None] | None = None) -> list[Integers]:
        """Synthetic rows: the position of each value in its column's domain, each of shape (count,)."""
        pairs = list(combinations(range(len(self.domains)), 2))
        rounds = self._column_rounds
        for number in range(rounds):
            self._ask_columns(number, rounds)
        if not pairs:
            rows = [np.zeros(count, dtype=np.int64)]
            candidates = [ColumnCandidates(self.starts[0], np.zeros(len(self.starts[0]), dtype=np.int64), 1)]
        else:
            candidates, shares, wanted = self._pairs(pairs, rounds)
            rows = first_population(shares, count, self.rng)
            population = Population(rows, [item.count for item in candidates])
            scale = count / self.records
            population.evolve({pair: wanted[pair] * scale for pair in pairs}, generations, self.rng, progress)
        return [
            values_of(row, item.levels, counts, item.starts, cells.widths(domain, item.starts), self.rng)
            for row, item, counts, domain in zip(rows, candidates, self.counts, self.domains, strict=True)
        ]

    # Rounds about columns

    def _ask_columns(self, number: int, rounds: int) -> None:
        """A round about columns: all of them in the last one, before it those whose cells may still be divided."""
        last = number == rounds - 1
        most = cells.FIRST_CELLS + (cells.MAX_CELLS - cells.FIRST_CELLS) * (number + 1) // max(1, rounds - 1)
        open_columns = [
            column
            for column, (domain, starts) in enumerate(zip(self.domains, self.starts, strict=True))
            if last or len(starts) < domain.length
        ] or list(range(len(self.domains)))
        weights = proportional([min(len(self.starts[column]), _MAX_COUNTED) for column in open_columns])
        views = [TableView((column,), weight) for column, weight in zip(open_columns, weights, strict=True)]
        asked = TableRound([ColumnCandidates.of_cells(item) for item in self.starts], views, self.noise[number])
        for view, noisy, grid in zip(views, self.ask(number, asked), asked.grids(), strict=True):
            (column,) = view.columns
            self._votes[column].append(ColumnVotes(self.starts[column], noisy, grid.deviation))
            if not last:
                self.starts[column] = cells.divided(
                    self.domains[column],
                    self.starts[column],
                    self._column_counts(column),
                    WORTH_DIVIDING * grid.deviation,
                    most,
                )
        if last:
            self.counts = [self._column_counts(column) for column in range(len(self.domains))]

    def _column_counts(self, column: int) -> Floats:
        domain, votes = self.domains[column], self._votes[column]
        sizes = [cells.widths(domain, item.starts).astype(np.float64) for item in votes]
        return column_counts(votes, sizes, float(self.records))

    # Rounds about pairs

    def _pairs(
        self, pairs: Sequence[Pair], number: int
    ) -> tuple[list[ColumnCandidates], list[Floats], Mapping[Pair, Floats]]:
        """Candidates of columns, their estimated shares, and the estimated votes of all pairs."""
        first = TableRound([], [TableView(pair, weight) for pair, weight in _even(pairs)], self.noise[number])
        candidates = self._joined(first.grids()[0].deviation)
        counts = [
            np.bincount(item.levels, own, minlength=item.count).astype(np.float64)
            for item, own in zip(candidates, self.counts, strict=True)
        ]
        seen = self._asked(number, TableRound(candidates, first.views, first.noise_multiplier))
        sizes = []
        for pair in pairs:
            noisy, deviation = seen[pair]
            expected = np.outer(counts[pair[0]], counts[pair[1]]) / self.records
            found = shrunk(noisy, expected, np.asarray(deviation)) - expected
            sizes.append(float(np.abs(found).sum()) + deviation / 2)
        views = [TableView(pair, weight) for pair, weight in zip(pairs, proportional(sizes), strict=True)]
        again = self._asked(number + 1, TableRound(candidates, views, self.noise[number + 1]))
        votes = {pair: _averaged(seen[pair], again[pair]) for pair in pairs}
        shares = [self._margin(column, counts[column], votes) for column in range(len(candidates))]
        return candidates, shares, self._estimated(votes, shares)

    def _joined(self, deviation: float) -> list[ColumnCandidates]:
        """The candidates of columns in pairs, given the noise of a pair's votes in their first round."""
        least = max(WORTH_PAIRING * deviation, self.records / self.levels)
        while True:
            results = [
                cells.joined(domain, starts, counts, least)
                for domain, starts, counts in zip(self.domains, self.starts, self.counts, strict=True)
            ]
            sizes = np.array([item.count for item in results], dtype=np.float64)
            if (sizes.sum() ** 2 - (sizes**2).sum()) / 2 <= MAX_PAIR_CANDIDATES or least > self.records:
                return results
            least *= 1.25

    def _asked(self, number: int, asked: TableRound) -> dict[Pair, tuple[Floats, float]]:
        """Released votes of pairs, shape (candidates, candidates), and the deviation of their noise."""
        results = {}
        for view, noisy, grid in zip(asked.views, self.ask(number, asked), asked.grids(), strict=True):
            first, second = view.columns
            shape = (asked.candidates[first].count, asked.candidates[second].count)
            results[first, second] = noisy.reshape(shape), grid.deviation
        return results

    def _margin(self, column: int, counts: Floats, votes: Mapping[Pair, tuple[Floats, float]]) -> Floats:
        others = [
            (noisy if pair[0] == column else noisy.T, deviation)
            for pair, (noisy, deviation) in votes.items()
            if column in pair
        ]
        own = self._votes[column][-1].deviation
        return margins(counts, own**2, others, float(self.records))

    def _estimated(self, votes: Mapping[Pair, tuple[Floats, float]], shares: Sequence[Floats]) -> dict[Pair, Floats]:
        """Estimated votes of pairs, shape (candidates, candidates)."""
        results = {}
        for pair, (noisy, deviation) in votes.items():
            first, second = (self.records * shares[column] for column in pair)
            expected = np.outer(first, second) / self.records
            results[pair] = pair_counts(noisy, deviation, expected, first, second)
        return results


def _even(pairs: Sequence[Pair]) -> list[tuple[Pair, float]]:
    """Pairs with equal weights."""
    return list(zip(pairs, proportional([1.0] * len(pairs)), strict=True))


def _averaged(one: tuple[Floats, float], other: tuple[Floats, float]) -> tuple[Floats, float]:
    """The average of two noisy counts by their precision, and its deviation."""
    precisions = [1 / deviation**2 for _, deviation in (one, other)]
    total = sum(precisions)
    noisy = (one[0] * precisions[0] + other[0] * precisions[1]) / total
    return noisy, float(total**-0.5)
