"""Several releases of a secret: products of pairs against tests on fine grids, and the accountant's face."""

from __future__ import annotations

import math
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import DpEvent, dp_event
from scipy.stats import norm

from dpassay.accounting import events
from dpassay.accounting import secret_protection as sp
from dpassay.accounting.accountants.base import Unsupported
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Direction, Rigor
from dpassay.accounting.events import ParallelDpEvent, SecretReleaseDpEvent

ROOT = Path(__file__).resolve().parents[3]
P = 1e-4
BIN80 = sp.poisson_binomial(np.full(80, 0.01))
RELEASE = SecretReleaseDpEvent(0.8, (0.6, 0.3, 0.0, 0.1))
OTHER = SecretReleaseDpEvent(1.5, (0.2, 0.5, 0.3))


def accounted(event: DpEvent, count: int = 1) -> sp.SecretProtectionAccountant:
    return sp.SecretProtectionAccountant().compose(event, count)


def on_a_grid(event: SecretReleaseDpEvent, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """P and Q of the outcome's cell: a post-processing, so its product is never easier to guess from."""
    edges = np.concatenate([[-np.inf], np.linspace(-6, 10, cells - 1), [np.inf]])
    sigma = event.noise_multiplier
    q = -np.diff(norm.sf(edges / sigma))
    p = -sum(w * np.diff(norm.sf((edges - k) / sigma)) for k, w in enumerate(event.weights))
    return np.asarray(p), q


def best_test(p: np.ndarray, q: np.ndarray, sizes: list[float]) -> list[float]:
    """The power of likelihood-ratio tests that reject in the reference with at most these probabilities."""
    order = np.argsort(-p / np.maximum(q, 1e-300), kind="stable")
    false, true = np.cumsum(q[order]), np.cumsum(p[order])
    return [float(true[max(int(np.searchsorted(false, size)) - 1, 0)]) for size in sizes]


# Products


def test_known_r_of_ten_rounds() -> None:
    """Computed independently, to the digits shown."""
    enclosure = sp.blowup(BIN80, 2.0, P, 10)
    assert 0.01620145 <= enclosure.lower <= enclosure.upper <= 0.01620165
    assert enclosure.width <= 1e-5 * enclosure.upper


@pytest.mark.parametrize(("first", "second"), [(RELEASE, RELEASE), (RELEASE, OTHER)])
def test_no_test_of_two_releases_on_a_grid_does_better(first: DpEvent, second: DpEvent) -> None:
    (p1, q1), (p2, q2) = on_a_grid(first, 1200), on_a_grid(second, 1200)
    both = accounted(first).compose(second)
    sizes = [1e-4, 1e-2, 0.3]
    powers = best_test(np.outer(p1, p2).ravel(), np.outer(q1, q2).ravel(), sizes)
    for size, power in zip(sizes, powers, strict=True):
        interval = both.protection(size).interval
        assert interval is not None
        assert power <= interval.upper + 1e-9  # 1.4 million additions, differences of numbers accurate to 1e-16
        assert power >= interval.lower * (1 - 5e-3)  # cells of 1/75 in each coordinate
        assert interval.width <= 1e-4


@pytest.mark.filterwarnings("ignore::dpassay.accounting.lattice.pairs.WidthNotMet")
@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_occurrences_far_beyond_the_noise_are_seen_for_certain(rounds: int) -> None:
    """33σ and more: exact but for Φ̄(29), below 1e-180."""
    exact = 1 - 0.9**rounds * (1 - P)
    enclosure = sp.blowup([0.9, 0.09, 0.01], 0.03, P, rounds)
    assert enclosure.lower <= exact * (1 + 1e-14)
    assert exact <= enclosure.upper * (1 + 1e-14)
    assert enclosure.width <= 1e-4 * enclosure.upper
    assert sp.blowup([0.0, 1.0], 0.03, P, 5).lower >= 1 - 1e-6


def test_more_rounds_need_more_noise_and_no_more_than_that() -> None:
    sigmas = [sp.noise_for(BIN80, P, 1e-3, rounds) for rounds in (1, 2, 10)]
    assert sigmas == sorted(sigmas)
    assert sp.blowup(BIN80, sigmas[2], P, 10).upper <= 1e-3
    # r falls faster than σ^−1 here, and its enclosure is 1e-5 wide
    assert sp.blowup(BIN80, sigmas[2] * (1 - 1.2e-5), P, 10).lower > 1e-3
    assert sp.noise_for([0.999999, 1e-6], P, 1e-3, 10) == 0


@pytest.mark.slow
def test_noise_of_several_rounds_for_secrets_is_the_largest_of_their_own() -> None:
    generator = np.random.default_rng(8)
    secrets = [generator.uniform(0, 0.03, int(generator.integers(20, 90))) for _ in range(4)]
    rs = [1e-3, 1e-3, 2e-3, 1e-3]
    own = [sp.noise_for(sp.poisson_binomial(q), P, r, 4) for q, r in zip(secrets, rs, strict=True)]
    # each is within its enclosure's relative 1e-5 in r, and 1e-6 in σ, of the least
    assert sp.noise_for_secrets(secrets, P, rs, 4) == pytest.approx(max(own), rel=1.2e-5)


# The event


def test_one_event_covers_several_secrets() -> None:
    secrets = [np.full(80, 0.01), np.full(4, 0.3), np.array([0.9])]
    event = sp.secret_release(1.3, *secrets)
    assert math.fsum((*event.weights, event.remainder)) == pytest.approx(1, abs=1e-15)
    assert events.from_json(events.to_json(event)) == event
    assert not events.is_native(event)
    covered = accounted(event).protection(P).value
    own = [sp.blowup(sp.poisson_binomial(secret), 1.3, P).upper for secret in secrets]
    assert max(own) * (1 - 1e-9) <= covered <= sum(own)
    alone = accounted(sp.secret_release(1.3, secrets[0])).protection(P)
    assert alone.value == pytest.approx(own[0], rel=1e-9)  # a remainder of 1e-15 over an r of 1e-2


def test_bad_events_are_refused() -> None:
    with pytest.raises(ValueError, match="must sum to 1"):
        SecretReleaseDpEvent(1.0, (0.5, 0.4))
    with pytest.raises(ValueError, match="weights must be between 0 and 1"):
        SecretReleaseDpEvent(1.0, (1.5, -0.5))
    with pytest.raises(ValueError, match="noise_multiplier must be at least 0"):
        SecretReleaseDpEvent(-1.0, (0.5, 0.5))
    with pytest.raises(ValueError, match="at least one secret"):
        sp.secret_release(1.0)
    with pytest.raises(ValueError, match="tail must be above 0"):
        sp.secret_release(1.0, [0.1], tail=0.0)


# The accountant


def test_one_release_is_exact() -> None:
    bound = accounted(sp.secret_release(2.0, np.full(80, 0.01))).protection(P)
    assert (bound.quantity, bound.at, bound.rigor) == ("r", P, Rigor.CERTIFIED)
    assert (bound.adjacency, bound.unit, bound.direction) == (Adjacency.SECRET, Unit("secret"), Direction.UPPER)
    assert bound.interval is not None
    assert bound.value == bound.interval.upper == pytest.approx(0.00173397, abs=5e-9)
    assert bound.interval.width <= 1e-9 * bound.value  # the remainder of 1e-15
    assert "public" in bound.assumptions[0]


def test_rounds_parts_and_repetitions_compose_alike() -> None:
    """A secret may occur in every part, so parts multiply; only then the lower end says nothing of the mechanism."""
    once = accounted(RELEASE).compose(RELEASE).compose(OTHER)
    ordered = accounted(OTHER).compose(dp_event.SelfComposedDpEvent(RELEASE, 2))
    for public in (True, False):
        parts = accounted(ParallelDpEvent([RELEASE, OTHER, RELEASE], public))
        assert parts.protection(P).value == once.protection(P).value == ordered.protection(P).value
        assert parts.protection(P).interval is None
    assert accounted(RELEASE, 3).protection(P).value > accounted(RELEASE, 2).protection(P).value


def test_nothing_and_everything() -> None:
    nothing = sp.SecretProtectionAccountant()
    assert nothing.protection(P).value == pytest.approx(P, rel=1e-14)
    assert nothing.epsilon(1e-5).value == nothing.delta(0.0).value == 0
    assert accounted(dp_event.NoOpDpEvent(), 3).protection(P).value == nothing.protection(P).value
    for event in (dp_event.NonPrivateDpEvent(), SecretReleaseDpEvent(0.0, (0.0, 1.0))):
        assert accounted(event).protection(P).value == 1
        assert accounted(event).compose(RELEASE).protection(P).value == 1
        assert accounted(event, 2).epsilon(1e-5).value == math.inf


def test_no_noise_in_one_of_two_releases() -> None:
    """With probability 0.4 the bare release shows the secret; otherwise the other one decides."""
    bare = SecretReleaseDpEvent(0.0, (0.6, 0.4))
    exact = 0.4 + 0.6 * accounted(OTHER).protection(P).value
    interval = accounted(bare).compose(OTHER).protection(P).interval
    assert interval is not None
    assert interval.lower <= exact <= interval.upper * (1 + 1e-10)
    assert interval.width <= 1e-4


def test_epsilon_delta_and_beta_are_those_of_the_direction_of_guessing() -> None:
    """δ(ε) = sup P(x > t) − e^ε Q(x > t) over thresholds, on a grid that misses the best one by 1e-4."""
    spent = accounted(RELEASE)
    x = np.arange(-6, 12, 1e-4)
    p = sum(w * norm.sf((x - k) / 0.8) for k, w in enumerate(RELEASE.weights))
    for epsilon in (0.0, 0.5, 2.0, 6.0):
        exact = float((p - math.exp(epsilon) * norm.sf(x / 0.8)).max())
        bound = spent.delta(epsilon)
        assert (bound.quantity, bound.at) == ("delta_over_reference", epsilon)
        assert bound.interval is not None
        assert bound.interval.lower - 1e-8 <= exact <= bound.value  # the derivative is 0 at the best threshold
        back = spent.epsilon(bound.value)
        assert (back.quantity, back.delta) == ("epsilon_over_reference", bound.value)
        assert back.interval is not None
        # δ and ε are both enclosed to 1e-5 of themselves, and δ's slope is at least a tenth of δ
        assert back.interval.lower <= epsilon <= back.interval.upper + 2e-4
        assert back.interval.width <= 1e-3
    beta = spent.beta(0.05)
    assert (beta.quantity, beta.direction) == ("beta_over_reference", Direction.LOWER)
    assert beta.value == pytest.approx(1 - spent.blowup(0.05).value, abs=1e-15)


def test_what_is_left_over_counts_as_discovery() -> None:
    event = SecretReleaseDpEvent(50.0, (0.5, 0.499), 0.001)
    assert accounted(event).protection(P).value >= 0.001
    assert accounted(event, 3).protection(P).value >= 1 - 0.999**3
    assert accounted(event).epsilon(1e-3).value == math.inf
    assert accounted(event).epsilon(2e-2).value < 1


@pytest.mark.parametrize(
    ("adjacency", "unit"), [("add_remove", None), ("secret", Unit()), ("replace_one", Unit("secret"))]
)
def test_it_protects_secrets_only(adjacency: str, unit: Unit | None) -> None:
    chosen = sp.SecretProtectionAccountant(adjacency, unit)
    with pytest.raises(Unsupported, match="adjacency and unit must be secret"):
        chosen.compose(RELEASE)


@pytest.mark.parametrize("event", [dp_event.GaussianDpEvent(1.0), dp_event.PoissonSampledDpEvent(0.1, RELEASE)])
def test_other_events_are_refused(event: DpEvent) -> None:
    with pytest.raises(Unsupported, match="SecretReleaseDpEvent"):
        accounted(event)


def test_the_guide_prints_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "secret-protection.md").read_text()
    (code,), (expected,) = (re.findall(rf"```{kind}\n(.*?)```", page, flags=re.DOTALL) for kind in ("python", "text"))
    (tmp_path / "guide.py").write_text(code)
    runpy.run_path(str(tmp_path / "guide.py"))
    assert capsys.readouterr().out == expected
