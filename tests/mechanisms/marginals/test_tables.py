"""What OpenDP releases, against marginals and scores that are computed by hand over all neighbours of a small table."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from marginal_tables import SCHEMA, SIZES, counted, neighbours, table
from scipy import stats

from dpassay.accounting.adjacency import Adjacency
from dpassay.mechanisms.marginals.generator import Marginals
from dpassay.mechanisms.marginals.levels import Levels
from dpassay.mechanisms.marginals.tables import (
    LARGEST_MARGINAL,
    LARGEST_TABLE,
    LARGEST_TOTAL,
    OPENDP_SHARE,
    ReleasedTable,
    TableQuery,
    TooLarge,
    _Fitting,
    _shares_that_fit,
)

needs_mbi = pytest.mark.skipif(find_spec("mbi") is None, reason="needs the extra marginals")
"""OpenDP's tables need mbi; arithmetic and OpenDP's own laws do not."""

RHO = 0.5
USED = (0, 1, 3)
"""Columns with more than one level."""

CASES = [
    ("mst", "add_remove"),
    pytest.param("mst", "replace_one", marks=pytest.mark.slow),
    pytest.param("aim", "add_remove", marks=pytest.mark.slow),
    pytest.param("aim", "replace_one", marks=pytest.mark.slow),
]


@functools.cache
def released(method: Any, adjacency: str) -> ReleasedTable:
    mechanism = Marginals(rho=RHO, method=method, rounds=3, rows=200, adjacency=Adjacency(adjacency), bins=40)
    levels = Levels(SCHEMA, mechanism.bins)
    return TableQuery(mechanism, levels.sizes, levels.of(table().rows)).release()


@needs_mbi
@pytest.mark.parametrize(("method", "adjacency"), CASES)
def test_what_neighbours_move_costs_what_is_charged(method: str, adjacency: str) -> None:
    """Σ |ΔM|²/(2σ²) over the released marginals M, for the worst neighbour.

    Half of the budget is for single columns and nine tenths of the rest for others. A replaced row moves a marginal by
    √2 and is taken to move it by 2.
    """
    marginals = released(method, adjacency).marginals
    assert {item.columns for item in marginals} >= {(column,) for column in USED}
    rows = table().rows
    exact = {item.columns: counted(rows, item.columns) for item in marginals}
    worst = 0.0
    for other in neighbours(rows, adjacency):
        moved = {columns: float(((counted(other, columns) - known) ** 2).sum()) for columns, known in exact.items()}
        worst = max(worst, sum(moved[item.columns] / (2 * item.sigma**2) for item in marginals))
    spent = RHO * (0.5 + 0.45) / (1 if adjacency == "add_remove" else 2)
    assert spent * (1 - 2.0**-7) < worst <= spent


@needs_mbi
@pytest.mark.parametrize(("method", "adjacency"), CASES)
def test_the_noise_has_the_scale_that_is_released(method: str, adjacency: str) -> None:
    """Σ (noise/σ)² over all cells is χ² up to rounding; a false alarm once in a million.

    MST measures 131 cells or more. Half of the noise has a sum around 33 ± 4 there, and is noticed below 66.
    """
    rows, noise = table().rows, []
    for item in released(method, adjacency).marginals:
        if item.sigma < 1e3:  # AIM measures with what rounding left of the budget
            exact = counted(rows, item.columns).ravel()
            noise += ((np.array(item.counts) - exact) / item.sigma).tolist()
    assert len(noise) >= (131 if method == "mst" else 45)
    total = float(np.square(noise).sum())
    assert stats.chi2.ppf(5e-7, len(noise)) < total < stats.chi2.ppf(1 - 5e-7, len(noise))


@needs_mbi
@pytest.mark.parametrize(("method", "adjacency"), CASES)
def test_synthetic_rows_follow_the_marginals(method: str, adjacency: str) -> None:
    """Columns of one level are filled in. 200 draws of a share p differ from 200p by 5 standard deviations once in a
    million; the model smooths noise of 3σ at most."""
    result = released(method, adjacency)
    assert [len(own) for own in result.levels] == [200] * len(SIZES)
    assert not result.levels[2].any()
    for item in result.marginals:
        if item.columns == (1,):
            share, made = item.counts[1] / max(1, sum(item.counts)), float(np.mean(result.levels[1] == 1))
            assert abs(share - made) < 5 * math.sqrt(0.25 / 200) + 3 * item.sigma / 30
    assert set(result.libraries) == {"opendp", "mbi"}


class Flat:
    """A model of which only projections are used; its cells are the same numbers in all calls."""

    def project(self, columns: tuple[str, ...]) -> Any:
        cells = np.random.default_rng([int(name[1:]) for name in columns]).uniform(
            0, 3, [SIZES[int(name[1:])] for name in columns]
        )
        return type("Projection", (), {"values": cells})


def scores(method: str, adjacency: str) -> tuple[Any, list[tuple[int, int]], dict[str, Any]]:
    """OpenDP's scores of all pairs, and what it takes them to move by."""
    import opendp.prelude as dp
    from opendp.extras.mbi import _aim, _mst, _utilities
    from opendp.extras.numpy import arrayd_domain

    dp.enable_features("contrib")
    pairs = list(itertools.combinations(USED, 2))
    names = {pair: tuple(f"c{column}" for column in pair) for pair in pairs}
    domain = _utilities.typed_dict_domain(
        {names[pair]: arrayd_domain(shape=tuple(SIZES[column] for column in pair), T="i32") for pair in pairs}
    )
    metric = _utilities.typed_dict_distance(dp.l2_distance(T="u32"))
    if method == "mst":
        transformation = _mst._make_mst_scores(domain, metric, list(names.values()), Flat())
    else:
        queries = [dp.mbi.Count(name, 1.0 + index) for index, name in enumerate(names.values())]
        transformation = _aim._make_aim_scores(domain, metric, queries, dict.fromkeys(names.values(), 2.0), Flat())
    moved = transformation.map(dict.fromkeys(names.values(), 1 if adjacency == "add_remove" else 2))
    return transformation, pairs, {"names": names, "moved": moved}


@needs_mbi
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("method", ["mst", "aim"])
def test_scores_move_by_at_most_what_opendp_takes(method: str, adjacency: str) -> None:
    """Over all neighbours, up to rounding of sums of thirty numbers; and as much is attained under add_remove."""
    transformation, pairs, said = scores(method, adjacency)

    def of(rows: Any) -> Any:
        return np.array(transformation({said["names"][pair]: counted(rows, pair).astype(np.int32) for pair in pairs}))

    rows = table(8).rows
    exact = of(rows)
    worst = max(float(np.abs(of(other) - exact).max()) for other in neighbours(rows, adjacency))
    assert worst <= said["moved"] * (1 + 1e-12)
    if adjacency == "add_remove":
        assert worst > said["moved"] * (1 - 1e-12)


def test_the_cost_of_a_selection_is_quadratic() -> None:
    """OpenDP's map of a noisy maximum against (Δ/b)²/2: bounded range 2Δ/b, and η²/8."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="f64", nan=False)), dp.linf_distance(T="f64", monotonic=False)
    for scale, moved in itertools.product((0.3, 1.0, 7.0, 1e4), (1.0, 1.02, 2.0)):
        chosen = dp.m.make_noisy_max(*space, output_measure=dp.zero_concentrated_divergence(), scale=scale)
        assert chosen.map(moved) == pytest.approx((moved / scale) ** 2 / 2, rel=1e-9)


def test_rounding_of_scores_is_within_the_bound() -> None:
    """Large counts over a model of fractions, against exact sums; the proof allows 0.00997 for the largest."""
    rng = np.random.default_rng(0)
    for cells in (10, 1000, 2**16):
        exact = rng.multinomial(LARGEST_TABLE, np.full(cells, 1 / cells)).astype(np.int32)
        model = rng.dirichlet(np.ones(cells)) * LARGEST_TOTAL
        true = sum(
            abs(Fraction(int(count)) - Fraction(float(share))) for count, share in zip(exact, model, strict=True)
        )
        allowed = 1.02 * (cells + 1) * 2.0**-53 * (LARGEST_TABLE + 1 + 2 * LARGEST_TOTAL)
        for computed in (np.linalg.norm(exact - model, 1), sum(np.abs(exact - model).tolist())):
            assert abs(Fraction(float(computed)) - true) <= allowed
    largest = 1.02 * (LARGEST_MARGINAL + 1) * 2.0**-53 * (LARGEST_TABLE + 1 + 2 * LARGEST_TOTAL)
    assert largest < 0.00997
    assert ((1 + 2 * largest + 2.0**-24) ** 2 - 1) * 0.0501 + 2.0**-10 < 0.0031 < 1 - OPENDP_SHARE


@needs_mbi
def test_shares_fit_for_every_number_of_columns() -> None:
    """Sums of MST's shares as OpenDP composes them; without the correction those of nine columns never fit."""
    import opendp.prelude as dp
    from opendp.extras.mbi import _mst

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="f64", nan=False)), dp.linf_distance(T="f64", monotonic=False)

    def fits(rho: float, selections: int) -> bool:
        rest = _mst.prior(_mst.prior(rho - rho * 0.5))
        select = _mst.prior(_mst.prior(rest - rest * 0.9))
        shares = [_mst.prior(select / selections)] * selections
        measure = dp.zero_concentrated_divergence()
        cost = dp.c.make_adaptive_composition(*space, measure, d_in=1.0, d_mids=shares).map(1.0)
        return bool(cost <= select)

    rng = np.random.default_rng(0)
    budgets = rng.uniform(0.001, 10, 4).tolist()
    assert not any(fits(rho, 8) for rho in budgets)
    with _shares_that_fit():
        assert all(fits(rho, selections) for rho in budgets for selections in range(1, 50))
    assert not any(fits(rho, 8) for rho in budgets), "OpenDP is as it was"


@needs_mbi
@pytest.mark.parametrize("total", [0.0, LARGEST_TOTAL * 1.01, math.nan])
def test_a_model_that_is_too_large_is_refused(total: float, monkeypatch: pytest.MonkeyPatch) -> None:
    from mbi import estimation

    model = type("Model", (), {"total": total, "cliques": []})
    monkeypatch.setattr(estimation, "mirror_descent", lambda *args, **kwargs: model)
    with pytest.raises(TooLarge):
        _Fitting()(None, None)


@needs_mbi
@pytest.mark.parametrize(
    "cells", [np.ones(3, dtype=np.float32), np.array([1.0, math.nan]), np.array([-1.0, 5.0]), np.array([9.0])]
)
def test_a_model_of_other_numbers_is_refused(cells: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from mbi import estimation

    projection = type("Projection", (), {"values": cells})
    model = type("Model", (), {"total": 3.0, "cliques": [("a",)], "project": lambda self, clique: projection})()
    monkeypatch.setattr(estimation, "mirror_descent", lambda *args, **kwargs: model)
    with pytest.raises(TooLarge):
        _Fitting()(None, None)


@needs_mbi
def test_a_run_has_a_largest_number_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    from mbi import estimation

    model = type("Model", (), {"total": 3.0, "cliques": []})
    monkeypatch.setattr(estimation, "mirror_descent", lambda *args, **kwargs: model)
    fitting = _Fitting()
    for _ in range(2**11):
        fitting(None, None)
    with pytest.raises(TooLarge):
        fitting(None, None)
