"""One call of OpenDP's AIM or MST over levels of columns, and what it releases.

OpenDP counts, selects, adds noise and keeps to the budget; mbi fits a model to what was released. Ours are:

- Scores of marginals are computed with JAX in 64 bits, not in 32, and the size of the fitted model is checked, so that
  rounding moves a score by little. `OPENDP_SHARE` of the budget leaves room for it.
- Each level of a column is counted. Columns with a single level say nothing, and are left out.
- Shares of the budget of MST's selections are rounded down by more than a unit in the last place
  (`_shares_that_fit`).

Proof: docs/proofs/marginals.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from dpassay.base.arrays import Integers
from dpassay.base.extras import install

OPENDP_SHARE = 1 - 2.0**-8
"""The part of ρ that OpenDP may spend; the rest is for rounding of scores (docs/proofs/marginals.md, Theorem 2)."""

LARGEST_TABLE = 2**24
"""The largest number of rows."""

LARGEST_TOTAL = 2.0**25
"""The largest number of rows of a fitted model."""

LARGEST_ROUNDS = 2**11
"""The largest number of models of one release, of which each follows a marginal that was selected."""

LARGEST_MARGINAL = 2**20
"""The largest number of cells of a marginal that may be measured."""

LARGEST_WORKLOAD = 2**26
"""The largest number of cells of all of them, since OpenDP counts each before it selects: 256 MiB."""

_SHARE = 1 - 2.0**-40


class TableParameters(Protocol):
    """The public parameters of a query; see `generator.Marginals`."""

    @property
    def rho(self) -> float: ...
    @property
    def method(self) -> str: ...
    @property
    def degree(self) -> int: ...
    @property
    def rounds(self) -> int: ...
    @property
    def model_megabytes(self) -> float: ...
    @property
    def rows(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def contributions(self) -> int: ...
    @property
    def width(self) -> int: ...


@dataclass(frozen=True, slots=True)
class NoisyMarginal:
    """Counts of all cells of some columns, with discrete Gaussian noise.

    Attributes:
        columns: their indices in the schema.
        sigma: scale σ of the noise of each count.
        counts: of the cells, in row-major order of the columns' levels.
    """

    columns: tuple[int, ...]
    sigma: float
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedTable:
    """What one call releases.

    Attributes:
        marginals: all that were measured, in no particular order.
        levels: of synthetic rows; of each column, shape (rows,).
        libraries: versions of OpenDP and mbi, by name.
    """

    marginals: tuple[NoisyMarginal, ...]
    levels: tuple[Integers, ...]
    libraries: dict[str, str]


class TooLarge(ArithmeticError):
    """A model is larger than the proof allows for or not of 64 bits, or there are too many."""


class TableQuery:
    """A query of a private table, built and checked before anything is charged.

    Args:
        mechanism: its parameters.
        sizes: the number of levels of each column, public.
        levels: private; of each column, shape (n,).

    Raises:
        ValueError: one line, if a library is missing, or the query is too large or has too few columns.
    """

    def __init__(self, mechanism: TableParameters, sizes: Sequence[int], levels: Sequence[Integers]) -> None:
        check_sizes(mechanism, sizes)
        self._dp, self._jax, pl = _libraries()
        self._mechanism, self._sizes = mechanism, tuple(sizes)
        self._names = {f"c{index}": index for index, size in enumerate(sizes) if size > 1}
        with self._jax.enable_x64(True):
            frame = {name: levels[index].astype(np.uint32) for name, index in self._names.items()}
            rho = mechanism.rho * OPENDP_SHARE
            context = self._dp.Context.compositor(
                data=pl.LazyFrame(frame),
                privacy_unit=self._dp.unit_of(contributions=mechanism.contributions),
                privacy_loss=(self._dp.zero_concentrated_divergence(), rho),
            )
            cuts = {name: list(range(sizes[index] - 1)) for name, index in self._names.items()}
            self._query: Any = context.query(rho=rho).contingency_table(cuts=cuts, algorithm=self._algorithm())

    def release(self) -> ReleasedTable:
        """Draws a release: the only use of the private table. Each call must be charged.

        Raises:
            Exception: whatever OpenDP or mbi raise; it must not be shown, as it may quote private counts.
        """
        with self._jax.enable_x64(True), _shares_that_fit():
            table = self._query.release()
            drawn = _sampled(table.model, self._mechanism)
        constant = np.zeros(self._mechanism.rows, dtype=np.int64)
        levels = [constant] * len(self._sizes)
        for name, index in self._names.items():
            levels[index] = np.asarray(drawn[name], dtype=np.int64)
        measured = tuple(
            NoisyMarginal(
                tuple(self._names[name] for name in item.clique),
                float(item.stddev),
                tuple(int(count) for count in np.asarray(item.noisy_measurement).ravel().tolist()),
            )
            for item in table.marginals.flatten()
        )
        versions = {name: metadata.version(name) for name in ("opendp", "mbi")}
        return ReleasedTable(measured, tuple(levels), versions)

    def _algorithm(self) -> Any:
        mechanism, mbi = self._mechanism, self._dp.mbi
        if mechanism.method == "mst":
            return mbi.MST(estimator=_Fitting())
        return mbi.AIM(
            estimator=_Fitting(), queries=mechanism.degree, rounds=mechanism.rounds, max_size=mechanism.model_megabytes
        )


def check_sizes(mechanism: TableParameters, sizes: Sequence[int]) -> None:
    """Checks that levels of these public numbers can be counted.

    Raises:
        ValueError: one line.
    """
    used = [size for size in sizes if size > 1]
    least = 2 if mechanism.method == "mst" else 1
    if len(used) < least:
        raise ValueError(
            f"method {mechanism.method} needs at least {least} columns with two values or more; the schema has "
            f"{len(used)}"
        )
    width = min(mechanism.width, len(used))
    largest = math.prod(sorted(used)[-width:])
    if largest > LARGEST_MARGINAL:
        raise ValueError(
            f"the largest marginal has {largest} cells, and at most {LARGEST_MARGINAL} are allowed; give fewer bins"
            + (", a smaller degree" if mechanism.method == "aim" else "")
            + ", or a schema with fewer categories"
        )
    cells = sum(_elementary(used, number) for number in (range(1, width + 1) if mechanism.method == "aim" else (2,)))
    if cells > LARGEST_WORKLOAD:
        raise ValueError(
            f"all marginals together have {cells} cells, and at most {LARGEST_WORKLOAD} are allowed; give fewer bins "
            "or fewer columns"
        )


def _elementary(sizes: Sequence[int], width: int) -> int:
    """The number of cells of all marginals of so many columns: the elementary symmetric polynomial."""
    sums = [1] + [0] * width
    for size, number in itertools.product(sizes, range(width, 0, -1)):
        sums[number] += sums[number - 1] * size
    return sums[width]


def check_libraries() -> None:
    """Raises a `ValueError` that says how to install what is missing."""
    _libraries()


def _libraries() -> tuple[Any, Any, ModuleType]:
    """OpenDP's prelude, JAX and Polars.

    Raises:
        ValueError: if one is not installed.
    """
    try:
        import jax
        import mbi  # noqa: F401 - OpenDP imports it late
        import opendp.prelude as dp
        import polars
        from opendp.extras.mbi._mst import prior  # noqa: F401 - of OpenDP 0.16
    except ImportError as error:
        raise ValueError(f"{error.name} is not installed; mechanism marginals needs {install('marginals')}") from None
    dp.enable_features("contrib")
    return dp, jax, polars


class _Fitting:
    """The models that mbi fits to released marginals, as OpenDP asks for them, which are checked."""

    def __init__(self) -> None:
        self._models = 0

    def __call__(self, domain: Any, measured: Any, *, potentials: Any = None) -> Any:
        """A model.

        Raises:
            TooLarge: if rounding of scores could be larger than what the proof allows for. It follows from what was
                released.
        """
        from mbi.estimation import mirror_descent

        self._models += 1
        model = mirror_descent(domain, measured, potentials=potentials)
        total = float(model.total)
        if self._models > LARGEST_ROUNDS or not 0 < total <= LARGEST_TOTAL:
            raise TooLarge
        for clique in model.cliques:
            cells = np.asarray(model.project(clique).values)
            if cells.dtype != np.float64 or not 0 <= float(cells.min()) <= float(cells.sum()) <= 2 * total:
                raise TooLarge
        return model


@contextmanager
def _shares_that_fit() -> Iterator[None]:
    """While it is open, shares of a budget that MST rounds down are a part in 2⁴⁰ smaller.

    OpenDP 0.16 divides the budget of MST's selections by their number and takes the next smaller float. The sum of five
    or more such shares, rounded up, may exceed the budget, and for nine columns always does; OpenDP then ends with an
    error after part of the budget was spent. Smaller shares cost no more, and OpenDP checks their sum as before.
    """
    from opendp.extras.mbi import _mst

    given = _mst.prior
    _mst.prior = lambda share: given(share * _SHARE)
    try:
        yield
    finally:
        _mst.prior = given


def _sampled(model: Any, mechanism: TableParameters) -> Any:
    """Levels of synthetic rows, by the public seed: independent draws from the model."""
    known = np.random.get_state()  # noqa: NPY002 - mbi draws from NumPy's global generator
    np.random.seed(mechanism.seed % 2**32)  # noqa: NPY002
    try:
        return model.synthetic_data(mechanism.rows, method="sample").to_dict()
    finally:
        np.random.set_state(known)  # noqa: NPY002
