"""Singling out: predicates made from synthetic rows that are true for exactly one row.

That a predicate is true for exactly one of n rows is not necessarily a leak: a predicate of weight about 1/n isolates a
row with probability 37% by chance. So the same predicates are evaluated on equally many rows of the holdout, and
compared with baseline predicates that use only the ranges and categories of the synthetic columns.

Source: Cohen and Nissim, "Towards Formalizing the GDPR's Notion of Singling Out" (2020); Giomi et al., "A Unified
    Framework for Quantifying Privacy Risk in Synthetic Data" (2023), section 4.1, for how predicates are made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpassay.attacks.released.holdout import Hits
from dpassay.attacks.released.tables import EncodedTable, Step, Tables
from dpassay.base import validate
from dpassay.base.arrays import Bools, Floats, Integers

ATTEMPTS = 1000
"""Number of predicates of each kind, if there are as many."""
TRIES = 10
"""Conjunctions that are tried for each that is wanted; those that do not single out a synthetic row are left out."""
COLUMNS = 4
"""Number of columns in a conjunction, if there are as many."""


@dataclass(frozen=True, slots=True)
class ColumnCondition:
    """A comparison of one column with a value: ``=``, ``<=`` or ``>=`` for a number, ``=`` for a category.

    Attributes:
        numeric: whether `index` indexes numbers or categories.
        index: index of the column among those of its kind.
        relation: of the column's value to `value`.
        value: the number divided by the range, or the code of a category.
    """

    numeric: bool
    index: int
    relation: str
    value: float

    def holds(self, table: EncodedTable) -> Bools:
        """The rows for which it is true; false for missing values."""
        column = table.numbers[:, self.index] if self.numeric else table.codes[:, self.index]
        if self.relation == "=":
            return np.asarray(column == self.value)
        return np.asarray(column <= self.value if self.relation == "<=" else column >= self.value)


Predicate = tuple[ColumnCondition, ...]


def singling_out(
    tables: Tables,
    *,
    seed: int,
    attempts: int = ATTEMPTS,
    columns: int = COLUMNS,
    progress: Step | None = None,
) -> Hits:
    """Makes predicates from synthetic rows and counts the rows that they single out.

    A unit is hit if a predicate is true for a row of it and for none of another unit of either side. This definition
    treats both sides alike, unlike "the only one of the source". `beside` has the usual counts, predicates that are
    true for exactly one unit of the source, or of equally many units of the holdout; their intervals treat predicates
    as independent.

    Args:
        tables: the rows, and the units whose rows they are.
        seed: of the choice of predicates; a public choice.
        attempts: number of predicates of each kind.
        columns: number of columns in a conjunction.
        progress: called with the number of predicates done and the total.
    """
    validate.integer(minimum=1, attempts=attempts)
    validate.integer(minimum=1, columns=columns)
    rng = np.random.default_rng(seed)
    kinds = {  # drawn first, so that they do not depend on the numbers of rows
        "one column": univariate(tables.synthetic, rng, attempts),
        "several columns": multivariate(tables.synthetic, rng, attempts, columns),
        "chance": by_chance(tables.synthetic, rng, attempts, columns),
    }
    both, owners = EncodedTable.joined(tables.source, tables.holdout), tables.owners
    count, total_units = tables.counts[0], sum(tables.counts)
    size = min(count, total_units - count)
    of_source, of_holdout = np.zeros(total_units, dtype=np.bool_), np.zeros(total_units, dtype=np.bool_)
    of_source[rng.permutation(count)[:size]] = True
    of_holdout[count + rng.permutation(total_units - count)[:size]] = True
    total = sum(len(predicates) for predicates in kinds.values())
    hit, done = np.zeros(total_units, dtype=np.bool_), 0
    counts: list[tuple[str, int, int]] = []
    for kind, predicates in kinds.items():
        alone = [0, 0]
        for predicate in predicates:
            units = np.unique(owners[_all_hold(predicate, both)])
            alone[0] += int(of_source[units].sum()) == 1
            alone[1] += int(of_holdout[units].sum()) == 1
            if kind != "chance" and len(units) == 1:
                hit[units] = True
            done += 1
            if progress is not None:
                progress(done, total)
        sides = zip(("source", "holdout"), alone, strict=True)
        counts += [(f"{kind}: predicates true of one of {size} {s} units", n, len(predicates)) for s, n in sides]
    return Hits(
        "singling_out",
        "some rows were given to the generator and others held out; find a property that only one of all rows has",
        f"{len(kinds['one column'])} properties of one column and {len(kinds['several columns'])} of several, made "
        "from synthetic rows",
        "singled out",
        hit[:count],
        hit[count:],
        {},
        tuple(counts),
    )


def _all_hold(predicate: Predicate, table: EncodedTable) -> Bools:
    true = predicate[0].holds(table)
    for condition in predicate[1:]:
        true &= condition.holds(table)
    return true


def univariate(synthetic: EncodedTable, rng: np.random.Generator, attempts: int) -> list[Predicate]:
    """Values that occur once in their column, and its ends; at most `attempts` of them."""
    pool: list[Predicate] = []
    for position in range(synthetic.numbers.shape[1]):
        column = synthetic.numbers[:, position]
        values, counts = np.unique(column[np.isfinite(column)], return_counts=True)
        pool += [(ColumnCondition(True, position, "=", float(value)),) for value in values[counts == 1]]
        if len(values):
            pool.append((ColumnCondition(True, position, "<=", float(values[0])),))
            pool.append((ColumnCondition(True, position, ">=", float(values[-1])),))
    for position in range(synthetic.codes.shape[1]):
        codes = synthetic.codes[:, position]
        categories, counts = np.unique(codes[codes >= 0], return_counts=True)
        pool += [(ColumnCondition(False, position, "=", int(code)),) for code in categories[counts == 1]]
    return [pool[index] for index in rng.permutation(len(pool))[:attempts]]


def multivariate(synthetic: EncodedTable, rng: np.random.Generator, attempts: int, columns: int) -> list[Predicate]:
    """Conjunctions of several columns of a synthetic row: equal categories, numbers at least as far from the median.

    Those that hold for one synthetic row alone, at most `attempts` of them. Others say little of a row, and rarely
    single out a private one.
    """
    medians = _medians(synthetic)
    results: dict[Predicate, None] = {}
    width = synthetic.numbers.shape[1] + synthetic.codes.shape[1]
    for _ in range(TRIES * attempts):
        row = int(rng.integers(len(synthetic)))
        chosen = rng.permutation(width)[:columns]
        predicate = _conditions(synthetic.numbers[row], synthetic.codes[row], medians, np.sort(chosen))
        if predicate and predicate not in results and _all_hold(predicate, synthetic).sum() == 1:
            results[predicate] = None
            if len(results) == attempts:
                break
    return list(results)


def by_chance(synthetic: EncodedTable, rng: np.random.Generator, attempts: int, columns: int) -> list[Predicate]:
    """Baseline conjunctions, from rows drawn uniformly from the ranges and categories of the synthetic columns."""
    codes = [np.unique(column[column >= 0]) for column in synthetic.codes.T]
    numbers = [column[np.isfinite(column)] for column in synthetic.numbers.T]
    ends = [(values.min(), values.max()) if len(values) else (np.nan, np.nan) for values in numbers]
    medians = _medians(synthetic)
    results: dict[Predicate, None] = {}
    for _ in range(attempts):
        number = np.array([low + (high - low) * rng.random() for low, high in ends])
        code = np.array([rng.choice(values) if len(values) else -1 for values in codes], dtype=np.int32)
        chosen = rng.permutation(len(ends) + len(codes))[:columns]
        predicate = _conditions(number, code, medians, np.sort(chosen))
        if predicate:
            results[predicate] = None
    return list(results)


def _medians(table: EncodedTable) -> Floats:
    columns = [column[np.isfinite(column)] for column in table.numbers.T]
    return np.array([np.median(values) if len(values) else np.nan for values in columns])


def _conditions(
    numbers: Floats,
    codes: NDArray[np.int32],
    medians: Floats,
    chosen: Integers,
) -> Predicate:
    out = []
    for index in (int(index) for index in chosen):
        if index < len(numbers):
            value = float(numbers[index])
            if np.isfinite(value):
                out.append(ColumnCondition(True, index, ">=" if value > medians[index] else "<=", value))
        elif codes[index - len(numbers)] >= 0:
            out.append(ColumnCondition(False, index - len(numbers), "=", int(codes[index - len(numbers)])))
    return tuple(out)
