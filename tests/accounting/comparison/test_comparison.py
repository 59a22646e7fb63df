"""Comparison of accountants: right numbers, honest times, every method in the table or named with a reason."""

from __future__ import annotations

import json
import math
import re
import sys
import warnings
from pathlib import Path

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event

from dpassay.accounting import ACCOUNTANTS, Adjacency, Bound, Direction, Rigor, Unsupported, account, accountant, events
from dpassay.accounting.comparison import comparison as job
from dpassay.accounting.comparison import curves
from dpassay.accounting.comparison.comparison import compare, measure, support
from dpassay.accounting.events import EXAMPLES, BoundedRangeSelectionDpEvent

GAUSSIANS = dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(5.0), 10)
SAMPLED = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0)), 100)


def profile_of_gaussian(mu: float, epsilon: float | mpmath.mpf) -> mpmath.mpf:
    """δ(ε) of μ-GDP with 50 digits (Balle and Wang 2018, Theorem 8)."""
    with mpmath.workdps(50):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


def epsilon_of_gaussian(mu: float, delta: float) -> float:
    """ε(δ) of μ-GDP by bisection with 50 digits."""
    with mpmath.workdps(50):
        low, high = mpmath.mpf(0), mpmath.mpf(100)
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (low, middle) if profile_of_gaussian(mu, middle) <= delta else (middle, high)
        return float(high)


def values(result: job.Comparison) -> dict[tuple[str, Rigor], float]:
    return {(row.bound.method, row.bound.rigor): row.bound.value for row in result.rows}


# --- the table


def test_every_accountant_has_a_row_or_a_reason() -> None:
    result = compare(GAUSSIANS, adjacency="add_remove", delta=1e-5)
    assert {row.bound.method for row in result.rows} | set(result.unsupported) == set(ACCOUNTANTS)
    assert not {row.bound.method for row in result.rows} & set(result.unsupported)
    assert all(row.seconds > 0 for row in result.rows)
    assert "realised" in result.unsupported["ex_post"] or "pure" in result.unsupported["ex_post"]
    ranks = [(row.bound.rigor is not Rigor.CERTIFIED, row.bound.value) for row in result.rows]
    assert ranks == sorted(ranks)
    # ε of ten Gaussians, σ = 5: exact, and rounded up by at most a relative 1e-12 (the search in conversions.py).
    exact = epsilon_of_gaussian(math.sqrt(10) / 5, 1e-5)
    gdp = values(result)["gdp", Rigor.CERTIFIED]
    assert exact <= gdp <= exact * (1 + 1e-9)
    certified = [row.bound.value for row in result.rows if row.bound.rigor is Rigor.CERTIFIED]
    assert min(certified) >= exact * (1 - 1e-12)


def test_rows_are_shown_as_they_arrive_the_certified_one_first() -> None:
    shown: list[str] = []
    result = compare(
        SAMPLED,
        adjacency=Adjacency.ADD_REMOVE,
        delta=1e-5,
        methods=["rdp", "basic", "lattice"],
        shown=lambda rows: shown.append(rows[0].bound.method),
    )
    assert shown == ["lattice", "rdp"]
    assert result.inapplicable == ("basic",)


def test_what_is_too_large_for_a_library_is_its_reason_and_no_lack_of_a_bound() -> None:
    many = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0)), 10**6)
    result = compare(many, adjacency=Adjacency.ADD_REMOVE, delta=1e-5, methods=["prv", "gdp"])
    assert "at most 4e+06 are allowed" in result.unsupported["prv"]
    assert result.inapplicable == ("gdp",)


def test_rows_are_what_account_says() -> None:
    """But for the certified interval, which is narrower than the default and inside of it."""
    result = compare(SAMPLED, adjacency=Adjacency.ADD_REMOVE, delta=1e-5)
    for row in result.rows:
        if (row.bound.method, row.bound.rigor) != ("rdp", Rigor.ESTIMATE):
            asked = account(SAMPLED, method=row.bound.method, adjacency="add_remove", delta=1e-5)
            if row.bound.method == "lattice":
                narrow, wide = row.bound.interval, asked.interval
                assert narrow is not None
                assert wide is not None
                assert wide.lower <= narrow.lower <= narrow.upper <= wide.upper
                assert narrow.upper - narrow.lower <= 1e-6 * narrow.upper
            else:
                assert row.bound == asked
    estimate = accountant("rdp", "add_remove").compose(SAMPLED).estimate(1e-5)
    assert values(result)["rdp", Rigor.ESTIMATE] == estimate.value


def test_a_published_row_of_selections() -> None:
    """Clip 9, denominator 64, temperature 1.5, 367 tokens, n = 108000: 9.888715 in the published table's arithmetic."""
    event = dp_event.SelfComposedDpEvent(BoundedRangeSelectionDpEvent(2 * 9 / (64 * 1.5)), 367)
    result = compare(event, adjacency="add_remove", delta=108000**-1.1, methods=("zcdp", "basic"))
    assert values(result)["zcdp", Rigor.CERTIFIED] == pytest.approx(9.888715, abs=5e-7)
    assert values(result)["basic", Rigor.CERTIFIED] == pytest.approx(367 * 18 / 96, rel=1e-12)
    assert result.unsupported == {}


def test_under_replace_one_only_those_who_can() -> None:
    result = compare(SAMPLED, adjacency="replace_one", delta=1e-5)
    assert "pld" in {row.bound.method for row in result.rows}
    assert {"rdp", "prv", "zcdp", "basic"} <= set(result.unsupported)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.5}, "delta"),
        ({"adjacency": "sideways"}, "adjacency"),
        ({"methods": ("magic",)}, "method"),
    ],
)
def test_impossible_questions_are_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        compare(GAUSSIANS, **{"adjacency": "add_remove", "delta": 1e-5, **changes})  # type: ignore[arg-type]


def test_json_has_all_and_no_infinities() -> None:
    result = compare(dp_event.NonPrivateDpEvent(), adjacency="add_remove", delta=1e-5, methods=("basic", "gdp"))
    written = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert [row["value"] for row in written["rows"]] == ["inf", "inf"]
    assert written["about"] == {"type": "NonPrivateDpEvent"}
    assert written["quantity"] == "epsilon"
    assert written["at"] == 1e-5


def test_the_guides_code_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (Path(__file__).resolve().parents[3] / "docs" / "compare.md").read_text()
    (code,), (expected,) = (re.findall(rf"```{kind}\n(.*?)```", guide, flags=re.DOTALL) for kind in ("python", "text"))
    exec(code, {})  # noqa: S102
    assert capsys.readouterr().out == expected


# --- times


def bound(method: str = "m", value: float = 1.0) -> Bound:
    return Bound(Direction.UPPER, value, method, Rigor.CERTIFIED, Adjacency.ADD_REMOVE, delta=1e-5)


def test_no_method_profits_from_the_caches_of_another() -> None:
    from dpassay.accounting.accountants.rdp import sampled_gaussian_divergence

    filled: list[int] = []

    def answer() -> list[Bound]:
        filled.append(sampled_gaussian_divergence.cache_info().currsize)
        sampled_gaussian_divergence(0.1, 1.0, 4)
        return [bound()]

    rows, _ = measure({"first": answer, "second": answer})
    assert len(rows) == 2
    assert filled == [0, 0]


def test_warnings_and_failures_are_told() -> None:
    def warns() -> list[Bound]:
        warnings.warn("wider than asked", UserWarning, stacklevel=1)
        return [bound("warns")]

    def refuses() -> list[Bound]:
        raise Unsupported("no bound for that")

    def too_large() -> list[Bound]:
        raise MemoryError

    rows, reasons = measure({"warns": warns, "refuses": refuses, "too_large": too_large})
    assert [row.notes for row in rows] == [("wider than asked",)]
    assert reasons == {"refuses": "no bound for that", "too_large": "too_large failed: MemoryError"}


def test_a_mistake_in_an_event_is_no_reason_but_an_error() -> None:
    with pytest.raises(ValueError, match="noise_multiplier"):
        compare(dp_event.GaussianDpEvent(-1.0), adjacency="add_remove", delta=1e-5)


# --- curves


def test_epsilon_against_steps_of_gaussians_is_exact() -> None:
    result = compare(GAUSSIANS, adjacency="add_remove", delta=1e-5, methods=("gdp", "zcdp"))
    steps, profile, trade_off = curves.panels(GAUSSIANS, result)
    assert (steps.argument, profile.argument, trade_off.argument) == ("steps", "epsilon", "alpha")
    assert steps.notes == profile.notes == trade_off.notes == ()
    gdp = next(curve for curve in steps.curves if curve.method == "gdp")
    assert set(gdp.arguments) <= set(range(1, 11))
    assert (gdp.arguments[0], gdp.arguments[-1]) == (1, 10)
    for count, value in zip(gdp.arguments, gdp.values, strict=True):
        exact = epsilon_of_gaussian(math.sqrt(count) / 5, 1e-5)
        assert exact <= value <= exact * (1 + 1e-9)
    curve = next(curve for curve in profile.curves if curve.method == "gdp")
    for epsilon, value in zip(curve.arguments, curve.values, strict=True):
        exact = profile_of_gaussian(math.sqrt(10) / 5, epsilon)
        assert exact <= value <= exact * (1 + 1e-9)  # log_ndtr to a relative 1e-13, times logs of up to some hundreds


def test_a_trade_off_lies_closely_below_the_exact_one() -> None:
    """β = Φ(Φ⁻¹(1 − α) − μ) of a Gaussian is the largest f(ε) = 1 − δ(ε) − e^ε α. The grid's step is h = 0.065, so a
    point within h/2 of the best ε loses at most (h/2)²/2·|f″|, and |f″| ≤ φ(ε/μ − μ/2)/μ + e^ε α ≤ 0.64 + 1: 9e-4."""
    mu = math.sqrt(10) / 5
    result = compare(GAUSSIANS, adjacency="add_remove", delta=1e-5, methods=("gdp",))
    (curve,) = curves.panels(GAUSSIANS, result)[2].curves
    for alpha, beta in zip(curve.arguments, curve.values, strict=True):
        with mpmath.workdps(50):
            quantile = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(alpha))
            exact = mpmath.ncdf(quantile - mpmath.mpf(mu))
        assert exact - 9e-4 <= beta <= exact


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_trade_off_of_pure_dp_is_exact(epsilon: float) -> None:
    """Two chords: β = max(0, 1 − e^ε α, e^{−ε}(1 − α)); 10⁻¹⁵ is taken off, and 4 roundings of at most e^ε."""
    alphas = np.array([0.0, 1e-6, 1e-3, 0.1, 0.4, 0.9, 1.0])
    betas = curves.trade_off_of_profile(np.array([epsilon]), np.array([0.0]), alphas)
    exact = [max(0.0, 1 - math.exp(epsilon) * a, math.exp(-epsilon) * (1 - a)) for a in alphas]
    assert betas == pytest.approx(exact, abs=1e-15 + 4 * 2.0**-52 * math.exp(epsilon))
    assert (betas <= np.array(exact) + 2.0**-50).all()


def test_what_the_time_limit_leaves_out_is_said() -> None:
    result = compare(SAMPLED, adjacency="add_remove", delta=1e-5, methods=("rdp", "pld", "prv"))
    panels = curves.panels(SAMPLED, result, seconds=1e-9)
    told = " ".join(note for panel in panels for note in panel.notes)
    for row in result.rows:
        assert f"{row.bound.method}: ε at 1 of" in told
        assert f"{row.bound.method} has no δ(ε) and no β(α) here" in told
    # What is known from the table needs no time.
    assert {curve.method: curve.arguments for curve in panels[0].curves} == {
        row.bound.method: (100.0,) for row in result.rows
    }


@pytest.mark.slow
def test_nothing_is_left_out_in_silence() -> None:
    result = compare(SAMPLED, adjacency="add_remove", delta=1e-5, methods=("rdp", "prv"))
    for panel in curves.panels(SAMPLED, result, seconds=60.0):
        drawn = {curve.method for curve in panel.curves}
        for row in result.rows:
            assert row.bound.method in drawn or any(note.startswith(row.bound.method) for note in panel.notes)
    assert all(curve.rigor is Rigor.CERTIFIED for curve in panel.curves if curve.method == "rdp")


def test_different_events_have_no_curve_against_steps() -> None:
    mixed = dp_event.ComposedDpEvent([dp_event.GaussianDpEvent(5.0), dp_event.LaplaceDpEvent(3.0)])
    for event in (mixed, dp_event.GaussianDpEvent(5.0)):
        result = compare(event, adjacency="add_remove", delta=1e-5, methods=("zcdp", "gdp"))
        assert [panel.argument for panel in curves.panels(event, result)] == ["epsilon", "alpha"]


def test_coarse_first_visits_all_once() -> None:
    for length in (1, 2, 3, 12, 61):
        order = curves.coarse_first([float(x) for x in range(length)])
        assert sorted(order) == list(range(length))
        assert order[0] == length - 1


# --- who supports what


# What ledgers of releases so far hold, and must be read for ever.
IN_LEDGERS = {
    *("BoundedRangeSelectionDpEvent", "ExPostSelectionDpEvent", "ParallelDpEvent", "SecretGroupsReleaseDpEvent"),
    *("SecretReleaseDpEvent", "TruncatedPoissonSampledDpEvent", "NoOpDpEvent", "NonPrivateDpEvent"),
    *("RandomizedResponseDpEvent", "GaussianDpEvent", "LaplaceDpEvent", "DiscreteLaplaceDpEvent"),
    *("SelfComposedDpEvent", "ComposedDpEvent", "PoissonSampledDpEvent", "SampledWithReplacementDpEvent"),
    *("SampledWithoutReplacementDpEvent", "MixtureOfGaussiansDpEvent", "ZCDpEvent"),
}


def test_a_ledger_holds_every_event_that_it_ever_held() -> None:
    assert set(events.EVENTS) >= IN_LEDGERS
    for event in EXAMPLES.values():
        written = json.loads(json.dumps(events.to_json(event)))
        assert events.to_json(events.from_json(written)) == written


@pytest.mark.grid
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_support_is_what_accountants_do(adjacency: Adjacency) -> None:
    """Whoever is said to have a bound composes the event, and the others refuse it with the very reason."""
    answers = support(adjacency)
    assert len(answers) == len(EXAMPLES) * len(ACCOUNTANTS)
    for answer in answers:
        empty = accountant(answer.method, adjacency, job.unit_of(adjacency))
        if answer.reason is None:
            assert answer.rigor is not None
            composed = empty.compose(EXAMPLES[answer.example])
            if answer.method in ("basic", "zcdp", "gdp", "rdp", "advanced") and adjacency is not Adjacency.SECRET:
                bound = composed.epsilon(1e-5)
                assert bound.rigor is answer.rigor or (answer.rigor is Rigor.ESTIMATE and math.isinf(bound.value))
        else:
            assert answer.rigor is None
            with pytest.raises(Unsupported) as refusal:
                empty.compose(EXAMPLES[answer.example])
            assert str(refusal.value) == answer.reason
    assert json.dumps([answer.to_json() for answer in answers])


def test_without_prv_accountant_the_others_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """prv_accountant is optional; its row says what to install, and no other row changes."""
    event = dp_event.GaussianDpEvent(2.0)
    whole = compare(event, adjacency="add_remove", delta=1e-5)
    monkeypatch.setitem(sys.modules, "prv_accountant", None)
    without = compare(event, adjacency="add_remove", delta=1e-5)
    reason = "prv needs the library prv_accountant, which is not installed: pip install '.[prv]'"
    assert dict(without.unsupported) == {**whole.unsupported, "prv": reason}
    assert [row.bound for row in without.rows] == [row.bound for row in whole.rows if row.bound.method != "prv"]
    assert len(without.rows) == len(whole.rows) - 1
    assert "prv" not in without.inapplicable


def test_curves_are_those_of_the_unit() -> None:
    """At the compared δ the curves of a group pass through the compared bound, which is not that of a record."""
    result = compare(SAMPLED, adjacency="add_remove", delta=1e-5, unit="group(3)", methods=["lattice"])
    profile, powers = curves.panels(SAMPLED, result, seconds=5)[1:]
    epsilon, (curve,) = result.rows[0].bound.value, profile.curves
    deltas = np.exp(np.interp(epsilon, curve.arguments, np.log(curve.values)))
    assert deltas == pytest.approx(1e-5, rel=0.1)
    at = account(SAMPLED, adjacency="add_remove", delta=1e-5).value
    assert np.exp(np.interp(at, curve.arguments, np.log(curve.values))) > 1e-4
    assert min(powers.curves[0].values) < 1
