"""What a lattice costs: how far a law on it is off, and how many lattices a question takes."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from cupel.accounting import lattice_measure
from cupel.accounting.dominating_pairs import DominatingPair
from cupel.accounting.lattice_curve import Curve
from cupel.accounting.lattice_enclosure import Enclosure, Plan
from cupel.accounting.lattice_measure import pair_of, rounded_step
from cupel.accounting.laws import Laplace


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
        _, below = pair_of(law, step, step, 1e-14, -0.1, 0.1, 1e-6)
        assert below is not None
        moment = math.log(float((below.masses * np.exp(tilt * below.losses())).sum()))
        missing.append(float(_log_moment_of_laplace(0.1, tilt)) - moment)
    assert 0 < missing[2] < 0.3 * missing[1] < 0.09 * missing[0]
    assert missing[2] < (0.2 / 100) ** 2 * tilt * (tilt + 1) / 8  # what merging cells of a smooth law may cost


@pytest.mark.parametrize("cells", [100.0, 10.0, 3.0, 1.01, 0.5, 0.1, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 1.0])
def test_cells_of_a_law_that_is_narrower_than_one_are_in_order(epsilon: float, cells: float) -> None:
    """Beside a wide law the step may be longer than a narrow one; both of its atoms are in one cell then."""
    step = rounded_step(2 * epsilon / cells)
    ends = lattice_measure._ends_of_cells(Laplace(epsilon), -epsilon - 1.5 * step, step, 1 + 2 * math.ceil(cells) + 9)
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


def _lattices(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans of all lattices from here on."""
    plans: list[Plan] = []
    before = Enclosure.curves

    def curves(self: Enclosure, plan: Plan) -> tuple[Curve, Curve | None]:
        plans.append(plan)
        return before(self, plan)

    monkeypatch.setattr(Enclosure, "curves", curves)
    return plans
