"""What a lattice costs: how far a law on it is off, and how many lattices a question takes."""

from __future__ import annotations

import bisect
import math

import mpmath
import numpy as np
import pytest

from dpassay.accounting.lattice import measure
from dpassay.accounting.lattice.curve import OneSidedCurve
from dpassay.accounting.lattice.enclosure import Enclosure, LatticePlan
from dpassay.accounting.lattice.laws import Laplace
from dpassay.accounting.lattice.measure import enclosing_measures, rounded_step
from dpassay.accounting.lattice.pairs import DominatingPair
from dpassay.base.arrays import Floats


def _log_moment_of_laplace(epsilon: float, tilt: float) -> mpmath.mpf:
    """log E e^{tL}: atoms e^{−ε}/2 at −ε and 1/2 at ε, and density e^{−(ε − l)/2}/4 in between."""
    e, t = mpmath.mpf(epsilon), mpmath.mpf(tilt)
    between = mpmath.quad(lambda loss: mpmath.exp(t * loss - (e - loss) / 2) / 4, [-e, 0, e])
    return mpmath.log(mpmath.exp(-e - t * e) / 2 + mpmath.exp(t * e) / 2 + between)


@pytest.mark.parametrize("tilt", [3.0, 30.0])
def test_atoms_at_the_ends_of_a_law_cost_the_square_of_the_step(tilt: float) -> None:
    """From below they cost the step itself, and then n runs of them n times that."""
    law, missing = Laplace(0.1), []
    for cells in (25, 50, 100):
        step = rounded_step(0.2 / cells)
        _, below = enclosing_measures(law, step, step, 1e-14, -0.1, 0.1, 1e-6)
        assert below is not None
        moment = math.log(float((below.masses * np.exp(tilt * below.losses())).sum()))
        missing.append(float(_log_moment_of_laplace(0.1, tilt)) - moment)
    assert 0 < missing[2] < 0.3 * missing[1] < 0.09 * missing[0]
    assert missing[2] < (0.2 / 100) ** 2 * tilt * (tilt + 1) / 8  # what merging cells of a smooth law may cost


@pytest.mark.grid("cells", "epsilon")
@pytest.mark.parametrize("cells", [100.0, 10.0, 3.0, 1.01, 0.5, 0.1, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 1.0])
def test_cells_of_a_law_that_is_narrower_than_one_are_in_order(epsilon: float, cells: float) -> None:
    """Beside a wide law the step may be longer than a narrow one; both of its atoms are in one cell then."""
    step = rounded_step(2 * epsilon / cells)
    ends = measure.cell_ends(Laplace(epsilon), -epsilon - 1.5 * step, step, 1 + 2 * math.ceil(cells) + 9)
    assert (np.diff(ends) > 0).all()


def test_many_laplace_mechanisms_take_one_lattice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _lattices(monkeypatch)
    DominatingPair.laplace(100.0).self_compose(10_000).epsilon(1e-6)
    assert len(asked) == 1


def test_a_smallest_mu_keeps_its_lattices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which it asks for curves at hundreds of losses in several rounds."""
    asked = _lattices(monkeypatch)
    DominatingPair.gaussian(1.0).poisson_sampled(0.01).self_compose(10_000).mu(1e-5)
    assert len(asked) <= 12


@pytest.mark.parametrize(
    ("noise", "rate", "count", "delta"), [(0.8, 0.005, 1_000, 1e-6), (4.0, 0.05, 100_000, 1e-9), (20.0, 0.2, 100, 1e-5)]
)
def test_a_second_direction_takes_one_lattice_from_above(
    noise: float, rate: float, count: int, delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its ε is half of the other's or 99% of it."""
    asked = _lattices(monkeypatch)
    DominatingPair.gaussian(noise).poisson_sampled(rate).self_compose(count).epsilon(delta)
    assert len(asked) == 2


def test_lattices_of_few_points_are_made_finer() -> None:
    """Ten runs need some hundred points for a width of 1e-3; thousands cost little more."""
    result = DominatingPair.gaussian(1.0).poisson_sampled(0.1).self_compose(10).epsilon(1e-6)
    assert result.width < 3e-5 * result.upper


@pytest.mark.grid("dents", "empty")
@pytest.mark.parametrize("empty", [898, 800, 300, 0])
@pytest.mark.parametrize("dents", [(), (898,), (895, 897, 898), (10, 898), (0, 1), (400, 401, 402, 897)])
def test_a_curve_with_dents_gets_its_greatest_convex_minorant(dents: tuple[int, ...], empty: int) -> None:
    """Against the lower hull of the points of the curve, by turning left at each, in 40 digits.

    Where there is no mass the curve is straight, and a dent at its end bends all of it.
    """
    generator = np.random.default_rng(3)
    losses: Floats = -1.0 + 0.01 * np.arange(900, dtype=np.float64)
    masses = generator.uniform(0.5, 1.0, 900)
    masses[empty:898] = 0.0
    masses[list(dents)] *= -0.2
    new = measure.convex_minorant(masses, losses)
    assert (new >= 0).all()
    with mpmath.workdps(40):
        t = [mpmath.exp(mpmath.mpf(loss)) for loss in losses]
        points = [(mpmath.mpf(0), mpmath.fsum(masses)), *zip(t, _curve(masses, t), strict=True)]
        hull: list[tuple[mpmath.mpf, mpmath.mpf]] = []
        for x, y in points:
            while len(hull) > 1:
                (x0, y0), (x1, y1) = hull[-2:]
                if (x1 - x0) * (y - y0) > (y1 - y0) * (x - x0):
                    break
                hull.pop()
            hull.append((x, y))
        exact = [_on(hull, x) for x in t]
        worst = max(abs(each - want) for each, want in zip(_curve(new, t), exact, strict=True))
    assert worst < 1e-12 * float(points[0][1])


def _curve(masses: np.ndarray, t: list[mpmath.mpf]) -> list[mpmath.mpf]:
    """Σ_{j>i} m_j (1 − t_i/t_j)."""
    results, mass, kinks = [], mpmath.mpf(0), mpmath.mpf(0)
    for each, point in zip(masses[::-1], t[::-1], strict=True):
        results.append(mass - point * kinks)
        mass, kinks = mass + mpmath.mpf(float(each)), kinks + mpmath.mpf(float(each)) / point
    return results[::-1]


def _on(hull: list[tuple[mpmath.mpf, mpmath.mpf]], x: mpmath.mpf) -> mpmath.mpf:
    index = min(max(bisect.bisect_left([point for point, _ in hull], x), 1), len(hull) - 1)
    (x0, y0), (x1, y1) = hull[index - 1], hull[index]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def _lattices(monkeypatch: pytest.MonkeyPatch) -> list[LatticePlan]:
    """The plans of all lattices from here on."""
    plans: list[LatticePlan] = []
    before = Enclosure.curves

    def curves(self: Enclosure, plan: LatticePlan) -> tuple[OneSidedCurve, OneSidedCurve | None]:
        plans.append(plan)
        return before(self, plan)

    monkeypatch.setattr(Enclosure, "curves", curves)
    return plans
