"""Published claims of training loops: exact laws, the libraries' own code, and conditions under which they hold."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import mpmath
import numpy as np
import oracle
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from oracle_inversion import composed_delta, sampled_gaussian
from published_rows import checked, lower, upper
from scipy import integrate, special, stats

from dpassay.claims.published.registry import checks_of, read_published_claims
from dpassay.claims.published.training_loops import rate_and_divisor


def test_all_have_a_row_and_the_verdict_of_their_file() -> None:
    rows = [claim for claim in read_published_claims() if claim.check.startswith("training_loops.")]
    assert {claim.check.partition(".")[2] for claim in rows} == set(checks_of("training_loops"))
    for claim in rows:
        result = checked(claim.id)
        assert result.as_recorded, claim.id
        assert all(step[-1] == "." for step in result.finding.steps)


# Opacus: a divisor that is computed from the number of records


def exact_epsilon(numbers: int, ratio: float, delta: float) -> float:
    """ε of the squared norm of Gaussians of two variances, 1 and `ratio`, above a threshold: by the incomplete gamma
    function, over 4000 thresholds."""
    best = 0.0
    for step in range(1, 4000):
        half = numbers / 2 * (1 + (ratio - 1) * step / 2000)
        hits, alarms = special.gammaincc(numbers / 2, half / ratio), special.gammaincc(numbers / 2, half)
        if hits > delta and alarms > 1e-300:
            best = max(best, math.log((hits - delta) / alarms))
    return best


@pytest.mark.parametrize("dimensions", [500_000, 5_000_000])
def test_noise_of_two_scales(dimensions: int) -> None:
    """At most the exact ε, and of its size: Chernoff's bounds need a threshold that is missed half of the time."""
    exact = exact_epsilon(dimensions, (100 / 99) ** 2, 1e-5)
    result = lower("lib-opacus-divisor", steps=1, dimensions=dimensions)
    assert 0.45 * exact < result < exact
    assert lower("lib-opacus-divisor", steps=10, dimensions=dimensions // 10) == result


def test_tails_of_chi_square_laws() -> None:
    """The two bounds in the docstring, in 40 digits."""
    with mpmath.workdps(40):
        for degrees in (10, 1000, 100_000):
            for shift in (mpmath.mpf(k) / 100 for k in (1, 2, 10)):
                for x, above in ((1 + shift, True), (1 - shift, False)):
                    half = mpmath.mpf(degrees) / 2
                    tail = mpmath.gammainc(half, *((half * x,) if above else (0, half * x)), regularized=True)
                    assert tail <= mpmath.exp(-half * (x - 1 - mpmath.log(x)))


def test_equal_divisors_show_nothing() -> None:
    """Of 950 and 949 records both have 95 and 94; of 1000 and 999 in batches of 1, both have 1."""
    assert [rate_and_divisor(n, 100)[1] for n in (1000, 999, 950, 949, 901, 900)] == [100, 99, 95, 94, 90, 100]
    result = checked("lib-opacus-divisor", batch=1)
    assert (result.finding.lower, result.verdict) == (0.0, "UNPROVEN")


def test_what_opacus_answers_for_both_relations() -> None:
    pytest.importorskip("opacus")
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [(2.0, 0.1, 10)]
    for row in ("lib-opacus-divisor", "lib-opacus-divisor-public"):
        assert accountant.get_epsilon(1e-5) == pytest.approx(checked(row).claimed, rel=1e-9)
    assert upper("lib-opacus-divisor-public") < 0.799
    assert checked("lib-opacus-divisor-public", noise_multipliers=[1.5]).verdict == "REFUTED"


# Sensitivities that are set apart from the clipping norm


def test_a_sensitivity_of_its_own() -> None:
    """δ at the lower end, by Φ in 60 digits; and where the sensitivity is the clipping norm, nothing is shown."""
    row = "lib-flip-sensitivity"
    result = checked(row)
    assert result.claimed == 10
    with mpmath.workdps(60):
        mu = 10 / (mpmath.mpf("1e-4") * mpmath.sqrt(2 * mpmath.log(125_000)))
        epsilon = mpmath.mpf(lower(row))
        delta = mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(
            epsilon + mpmath.log(mpmath.ncdf(-mu / 2 - epsilon / mu))
        )
        assert 1e-5 <= delta < 1.001e-5
    assert 2.13e8 < lower(row) < 2.14e8
    assert checked(row, sensitivity=1, epsilon=1).verdict == "UNPROVEN"


# Counts of clipped records


def test_counts_of_clipped_units() -> None:
    """The variances of both are those of the paper, and one that counts by 1 adds the whole of the second."""
    for row in ("lib-opacus-adaptive-clipping", "lib-flower-adaptive-clipping"):
        exact = oracle.gaussian(float(1 / np.sqrt(3 / 4 + 1)), 1).epsilon(1e-5)
        assert lower(row) <= float(exact) <= lower(row) * (1 + 1e-9)
        assert lower(row, units=2000) < lower(row) - 1
    assert checked("lib-flower-adaptive-clipping").claimed == pytest.approx(float(oracle.gaussian(1, 1).epsilon(1e-5)))
    assert checked("lib-opacus-adaptive-clipping", units=2000).verdict == "UNPROVEN"


def test_what_opacus_counts() -> None:
    """A record that is clipped moves the count by 1, and so the clipping bound, where the noise is as good as none."""
    torch, opacus = pytest.importorskip("torch"), pytest.importorskip("opacus")
    from opacus.accountants import RDPAccountant

    def bound_after_a_step(size: float) -> float:
        data = torch.zeros(20, 2)
        data[0, 0] = size
        model = torch.nn.Linear(2, 1, bias=False)
        model, optimizer, loader = opacus.PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=20),
            noise_multiplier=1e-9,
            max_grad_norm=1.0,
            clipping="adaptive",
            target_unclipped_quantile=0.5,
            clipbound_learning_rate=1.0,
            max_clipbound=1e6,
            min_clipbound=1e-6,
            unclipped_num_std=1e-9,
        )
        (batch,) = next(iter(loader))
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        return math.log(float(optimizer.max_grad_norm))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Opacus: noise that is no secure randomness
        assert bound_after_a_step(100.0) - bound_after_a_step(0.0) == pytest.approx(1 / 20, abs=1e-6)
    accountant = RDPAccountant()
    accountant.history = [(1.0, 1.0, 1)]
    row = "lib-opacus-adaptive-clipping"
    assert accountant.get_epsilon(1e-5) == pytest.approx(checked(row).claimed, rel=1e-9)


def test_fractions_of_a_batch() -> None:
    """One step of 64 records at the rate 1/2: δ at the lower bound by quadrature of the two densities in the plane that
    gradients and fractions span, over all sizes of the batch."""
    row = "lib-opake-adaptive-clipping"
    result = lower(row, records=64, steps=1)
    sizes = np.arange(1, 65)
    chances = 0.5 * stats.binom.pmf(sizes - 1, 63, 0.5)
    gradient, fractions = 1 / 0.8, math.sqrt(8) / (0.05 * sizes)

    def excess(y: float, x: float) -> float:
        own = float((chances * np.exp(-((x - gradient) ** 2 + (y - fractions) ** 2) / 2)).sum())
        base = math.exp(-(x**2 + y**2) / 2)
        return max(own + 0.5 * base - math.exp(result) * base, 0.0) / (2 * math.pi)

    delta, error = integrate.dblquad(excess, -8, 11, -8, 14, epsabs=1e-9, epsrel=1e-6)
    assert error < 1e-8
    assert delta > 1e-5
    assert result > 1


def test_thresholds_that_leave_their_range_show_nothing() -> None:
    row = "lib-opake-adaptive-clipping"
    assert lower(row) == pytest.approx(6.82, abs=0.01)
    assert checked(row, target_quantile=0.5).verdict == "UNPROVEN"
    assert checked(row, thresholds=[0.5, 1.0, 2.0]).verdict == "UNPROVEN"
    assert checked(row, expected_batch=16, steps=5).verdict == "UNPROVEN", "batches with no record have no noise"


def test_centred_fractions() -> None:
    """By the inversion of the transform, for σ by the paper's formula; 1.35363 of opake is not below."""
    row = "lib-opake-adaptive-clipping-centred"
    sigma, rate = float((0.8**-2 + 8 * (2 * 32 * 0.05) ** -2) ** -0.5), 32 / 20_000
    for end, factor in ((lower(row), 1 - 1e-9), (upper(row), 1 + 1e-9)):
        delta = composed_delta(*sampled_gaussian(rate), sigma, 1000, end, "remove")
        assert (delta - 1e-5 * factor) * (factor - 1) <= 0
    assert checked(row, fraction_noise=0.04).verdict == "REFUTED"


# Samplers that are not what is accounted


def test_a_fixed_number_of_clients() -> None:
    row = "lib-flower-fixed-number"
    exact = float(oracle.sampled_without_replacement(1.5, 500, 1000).epsilon(1e-5))
    assert lower(row) <= exact <= lower(row) * 1.001
    assert checked(row).claimed == pytest.approx(2.98480004524568)
    assert checked(row, sample=1).verdict == "UNPROVEN"


def test_batches_drawn_with_replacement() -> None:
    """One step: δ by Φ in 40 digits, over 225 thresholds. With much noise the library's count is enough."""
    row = "lib-smartnoise-with-replacement"
    result = lower(row, steps=1)
    with mpmath.workdps(40):
        q = mpmath.mpf(1) / 10_000
        law = [mpmath.binomial(500, k) * q**k * (1 - q) ** (500 - k) for k in range(16)]

        def excess(t: mpmath.mpf) -> mpmath.mpf:
            return mpmath.fsum(p * mpmath.ncdf(k - t) for k, p in enumerate(law)) - mpmath.exp(result) * mpmath.ncdf(-t)

        best = max(excess(mpmath.mpf(t) / 100) for t in range(100, 1000, 4))
    assert 1e-6 <= best < 1.03e-6
    assert lower(row) > 3.9
    assert checked(row, noise_multiplier=5).verdict == "UNPROVEN"


def test_a_sum_over_allotted_steps() -> None:
    row = "lib-opake-poisson-of-allocation"
    exact = float(oracle.gaussian(10, 2).epsilon(1e-5))
    assert lower(row) <= exact <= lower(row) * (1 + 1e-9)
    assert checked(row, noise_multiplier=500).verdict == "UNPROVEN"


def test_shuffled_batches_that_are_accounted_as_poisson_samples() -> None:
    row = "lib-jax-privacy-keras-shuffled"
    event = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0))
    assert checked(row).claimed == pytest.approx(PLDAccountant().compose(event, 500).get_epsilon(1e-5), rel=1e-3)
    assert lower(row) == lower("lib-opacus-shuffled")
    assert checked(row, noise_multiplier=20).verdict == "UNPROVEN"
    assert lower("lib-safe-synthesizer-shuffled") > checked("lib-safe-synthesizer-shuffled").claimed + 6


# Sizes of what is released


def test_samples_of_each_label() -> None:
    """Largest remainders in exact fractions: 59/99 of 200 is 119 and 19/99."""
    result = checks_of("training_loops")["samples_of_each_label"]([60, 40], 200)
    assert "(120, 80) in D and (119, 81) in D′" in result.steps[1]
    assert result.lower == checked("lib-private-evolution-labels").finding.lower == 1.0
    exact = [Fraction(59 * 200, 99), Fraction(40 * 200, 99)]
    assert [math.floor(share) for share in exact] == [119, 80]
    assert max(exact, key=lambda share: share - math.floor(share)) == exact[1]
    assert checked("lib-private-evolution-labels", counts=[60_000, 40_000]).verdict == "UNPROVEN"
    assert checks_of("training_loops")["samples_of_each_label"]([3, 3, 1], 2).lower == 0.0


def test_as_many_rows() -> None:
    assert checked("lib-smartnoise-rows").verdict == "REFUTED"
