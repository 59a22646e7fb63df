"""Noisy Lloyd iterations: sensitivity over all neighbours, the charge, resumed runs, and clusters that are found."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_reports import cluster_report
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from private_centres import RADIUS, PrivateCentres

from dpassay.accounting import account
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run
from dpassay.mechanisms.embedding.embedder import unit_rows
from dpassay.mechanisms.primitives.integer_vectors import integer_vectors
from dpassay.mechanisms.primitives.nearest import nearest
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Recorded


def begin(path: Path, chosen: PrivateCentres, noise: str = "recorded") -> Run:
    ledger = Ledger.open(path / "ledger.sqlite")
    about = {"noise": noise}
    return ledger.begin("run", plan=chosen.plan(), adjacency=chosen.adjacency, unit=chosen.unit, about=about)


def directions(seed: int, count: int, dimension: int = 3) -> Any:
    """Unit vectors, some of them opposite to each other, and some too long."""
    drawn = np.random.default_rng(seed).normal(size=(count, dimension))
    drawn[1::3] = -drawn[::3][: len(drawn[1::3])]
    vectors = unit_rows(drawn)
    vectors[2::5] *= 7
    return vectors


@given(seed=st.integers(0, 10**6), size=st.integers(1, 6))
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE])
def test_no_neighbour_moves_the_statistics_beyond_the_sensitivity(adjacency: Adjacency, seed: int, size: int) -> None:
    """‖f(D) − f(D′)‖² over all neighbours, in whole numbers, for every way to put the centres."""
    chosen = PrivateCentres(clusters=2, dimension=3, adjacency=adjacency)
    data, extra = directions(seed, size), directions(seed + 1, 4)
    centres = unit_rows(np.random.default_rng(seed).normal(size=(2, 3)))
    own = chosen.statistics(integer_vectors(data, RADIUS), centres)
    neighbours = [np.delete(data, i, axis=0) for i in range(size)] + [np.vstack([data, row]) for row in extra]
    if adjacency is Adjacency.REPLACE_ONE:
        neighbours = [np.vstack([np.delete(data, i, axis=0), row]) for i, row in itertools.product(range(size), extra)]
    for other in neighbours:
        moved = own - chosen.statistics(integer_vectors(other, RADIUS), centres)
        assert int(np.square(moved).sum()) <= chosen.squared_sensitivity


def test_the_sensitivity_is_reached() -> None:
    """One unit vector more; one that turns round within its cluster, or that moves to another."""
    plain, exchanged = (
        PrivateCentres(clusters=k, dimension=16, adjacency=a)
        for k, a in ((2, Adjacency.ADD_REMOVE), (1, Adjacency.REPLACE_ONE))
    )
    axis = np.eye(16, dtype=np.float32)
    first, second = integer_vectors(axis[:1], RADIUS), integer_vectors(-axis[:1], RADIUS)
    nothing = np.empty((0, 16), dtype=np.int64)
    added = plain.statistics(first, axis[:2]) - plain.statistics(nothing, axis[:2])
    assert int(np.square(added).sum()) == plain.squared_sensitivity
    turned = exchanged.statistics(first, 0 * axis[:1]) - exchanged.statistics(second, 0 * axis[:1])
    assert int(np.square(turned).sum()) == exchanged.squared_sensitivity
    low = PrivateCentres(clusters=2, dimension=1, adjacency=Adjacency.REPLACE_ONE)
    ends = np.array([[1.0], [-1.0]], dtype=np.float32)
    moved = low.statistics(integer_vectors(ends[:1], RADIUS), ends) - low.statistics(
        integer_vectors(ends[1:], RADIUS), ends
    )
    assert int(np.square(moved).sum()) == low.squared_sensitivity == 4 * 2**32


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE])
@pytest.mark.parametrize("rho", [1e-3, 0.1, 0.3, 7.7])
def test_the_noise_covers_the_charge_exactly(adjacency: Adjacency, rho: float) -> None:
    """Δ²/(2σ²) ≤ ρ/T in rational numbers, and one float64 less would not do."""
    chosen = PrivateCentres(clusters=3, dimension=10, rho=rho, adjacency=adjacency)
    spent = [Fraction(chosen.squared_sensitivity) / (2 * Fraction(s) ** 2) for s in (chosen.scale,)]
    assert spent[0] <= Fraction(chosen.event().rho)
    less = math.nextafter(chosen.scale, 0)
    assert Fraction(chosen.squared_sensitivity) / (2 * Fraction(less) ** 2) > Fraction(chosen.event().rho)
    assert chosen.plan() == dp_event.SelfComposedDpEvent(dp_event.ZCDpEvent(rho / 5), 5)
    bound = account(chosen.plan(), adjacency=adjacency, delta=1e-6, method="zcdp")
    assert bound.value <= rho + 2 * math.sqrt(rho * math.log(1e6)) + 1e-9  # Bun and Steinke (2016), Proposition 1.3


@given(rows=st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), min_size=1, max_size=5))
def test_whole_vectors_are_never_too_long(rows: list[list[float]]) -> None:
    whole = integer_vectors(np.array(rows, dtype=np.float32), RADIUS)
    assert (np.square(whole).sum(axis=1) <= 2**32).all()


def test_noise_is_a_discrete_gaussian() -> None:
    """2,000 draws at σ = 3 with OS entropy: mean and variance within 6 standard errors, false alarm 4e-9."""
    drawn = OS_ENTROPY.discrete_gaussian(2000, 3.0).astype(float)
    assert abs(drawn.mean()) < 6 * 3 / math.sqrt(2000)
    assert abs(drawn.var() / 9 - 1) < 6 * math.sqrt(2 / 2000)


def topics(seed: int, count: int) -> tuple[Any, Any]:
    """Vectors around three axes of eight dimensions."""
    generator = np.random.default_rng(seed)
    truth = np.arange(count) % 3
    return unit_rows(np.eye(8)[truth] + 0.1 * generator.normal(size=(count, 8))), truth


def test_it_finds_clusters_and_less_noise_finds_them_better(tmp_path: Path) -> None:
    vectors, truth = topics(1, 3000)
    results = {}
    for rho in (1e-5, 10.0):
        chosen = PrivateCentres(clusters=3, dimension=8, rho=rho, seed=3)
        (tmp_path / str(rho)).mkdir()
        run = begin(tmp_path / str(rho), chosen)
        centres = chosen.fit(vectors, run, source=Recorded(1))
        run.finish()
        assert np.square(centres).sum(axis=1).max() <= 1.0001
        measure = cluster_report(nearest(vectors, centres), 3, truth).v_measure
        assert measure is not None
        results[rho] = measure
    assert results[10.0] > 0.95
    assert results[1e-5] < results[10.0] - 0.2


def test_an_interrupted_run_goes_on_from_what_it_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, _ = topics(2, 60)
    chosen, original, steps = PrivateCentres(clusters=3, dimension=8, iterations=3), Run.step, {"count": 0}

    def dies(self: Run, **parts: Any) -> None:
        original(self, **parts)
        steps["count"] += 1
        if steps["count"] == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "step", dies)
    with pytest.raises(KeyboardInterrupt):
        chosen.fit(vectors, begin(tmp_path, chosen), source=Recorded(1))
    monkeypatch.setattr(Run, "step", original)
    run = begin(tmp_path, chosen)
    assert run.last_committed("lloyd") == 1
    first = run.outcome("lloyd/0")
    assert first is not None
    centres = chosen.fit(vectors, run, source=Recorded(2))
    run.finish()
    again = run.outcome("lloyd/0")
    assert again is not None
    assert again.value == first.value
    assert np.array_equal(chosen.fit(vectors, begin(tmp_path, chosen), source=Recorded(3)), centres)


def test_wrong_inputs_are_refused(tmp_path: Path) -> None:
    chosen = PrivateCentres(clusters=3, dimension=8)
    run = begin(tmp_path, chosen)
    with pytest.raises(ValueError, match="another plan"):
        dataclasses.replace(chosen, rho=0.2).fit(topics(1, 9)[0], run, source=Recorded(1))
    with pytest.raises(ValueError, match="source of randomness is 'os'"):
        chosen.fit(topics(1, 9)[0], run)
    with pytest.raises(ValueError, match="must have 8 columns"):
        chosen.fit(topics(1, 9)[0][:, :5], run, source=Recorded(1))
    for changes, message in (
        ({"rho": 0.0}, "rho must be above 0"),
        ({"clusters": 0}, "clusters must be at least 1"),
        ({"adjacency": Adjacency.SECRET}, "adjacency must be one of"),
        ({"unit": Unit("group", 2)}, "record or user"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(chosen, **changes)
