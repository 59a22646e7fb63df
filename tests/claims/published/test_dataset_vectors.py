"""Published claims about dataset vectors: the numbers of a table that was computed before, and laws in 60 digits."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from published_rows import checked, lower, upper
from sampled_gaussians import delta_of, epsilon_of, mu_for

from dpassay.claims.published.registry import checks_of, read_published_claims

EPSILON, DELTA, DRAWN = 4.9, 9e-6, 500
IMDB, YELP = 12_500, 280_000
BIORXIV = (12_175, 4_989, 2_436, 5_574)
EXAMPLES = 0.1


def test_all_have_a_row_and_the_verdict_of_their_file() -> None:
    rows = [claim for claim in read_published_claims() if claim.check.startswith("dataset_vectors.")]
    assert {claim.check.partition(".")[2] for claim in rows} == set(checks_of("dataset_vectors"))
    for claim in rows:
        result = checked(claim.id)
        assert result.as_recorded
        assert all(step[-1] == "." for step in result.finding.steps)


# Theorem 4.1


def test_the_classical_noise_for_all_epsilon() -> None:
    mu = 10 / math.sqrt(2 * math.log(1.25e5))
    assert lower("004-1") == pytest.approx(2.265374e-5, rel=5e-7)
    assert lower("004-1") <= delta_of(mu, 10) <= upper("004-1") <= 1.000001 * lower("004-1")
    assert checked("004-1", epsilon=8.4197).verdict == "SUPPORTED"
    assert checked("004-1", epsilon=8.4199).verdict == "REFUTED"


@pytest.mark.parametrize(
    ("row", "records", "layers", "looser"),
    [("004-2", DRAWN, 4, 2.2976), ("004-8c", IMDB, 4, 2.138), ("004-8", IMDB, 1, None), ("004-8b", YELP, 1, None)],
)
def test_layers_of_classical_noise(row: str, records: int, layers: int, looser: float | None) -> None:
    """The ratio of σ to what the budget needs is that of the two μ."""
    epsilon, delta = (5.0, 1e-5) if row == "004-2" else (EPSILON, DELTA)
    rate = Fraction(DRAWN, records)
    inner = math.log1p(math.expm1(epsilon) / rate)
    mu = inner / math.sqrt(layers) / math.sqrt(2 * math.log(1.25 * layers * rate / delta))
    exact = epsilon_of(mu, delta, rate)
    assert exact * (1 - 1e-10) <= lower(row) <= exact <= upper(row) <= exact * (1 + 1e-10)
    if looser:
        ratio = mu_for(epsilon, delta, rate) / mu
        assert ratio == pytest.approx(looser, abs=5e-4)
        assert f"{ratio:.4f}"[:-1] in checked(row).finding.steps[-1]


def test_the_classical_noise_inside_amplification() -> None:
    assert lower("004-8") == pytest.approx(4.981, abs=5e-4)
    assert lower("004-8b") == pytest.approx(7.338, abs=5e-4)
    assert checked("004-8b", layers=4).verdict == "SUPPORTED"
    assert lower("004-2", layers=1, epsilon=8.5) > 8.5


# Theorem 4.2 and the released code


def test_amplification_of_one_release_is_tight() -> None:
    assert EPSILON - 1e-9 <= lower("004-3") <= upper("004-3") <= EPSILON
    mu = mu_for(EPSILON, DELTA, Fraction(DRAWN, IMDB))
    assert f"μ = {mu:.5f} has" in checked("004-3").finding.steps[1]
    assert lower("004-5", sensitivity=2, drawn=IMDB) == pytest.approx(EPSILON, abs=1e-9)


@pytest.mark.parametrize(
    ("row", "records", "moved", "rate", "table"),
    [
        ("004-5", IMDB, 2, Fraction(DRAWN, IMDB), 17.285),
        ("004-6", IMDB, 1, 1, 9.764),
        ("004-6b", YELP, 1, 1, 16.476),
        ("004-6c", IMDB, 2, 1, 23.563),
        ("004-6d", YELP, 2, 1, 42.025),
        ("004-10", IMDB, math.sqrt(2), Fraction(DRAWN, IMDB), 9.614),
        ("004-10b", IMDB, math.sqrt(3), Fraction(DRAWN, IMDB), 13.613),
    ],
)
def test_the_released_code(row: str, records: int, moved: float, rate: Fraction | int, table: float) -> None:
    """μ for the stated budget, multiplied; the table adds .1 for the examples, and so does a step."""
    mu = mu_for(EPSILON, DELTA, Fraction(DRAWN, records)) * moved
    exact = epsilon_of(mu, DELTA, rate)
    assert exact * (1 - 1e-9) <= lower(row) <= upper(row) <= exact * (1 + 1e-9)
    assert lower(row) + EXAMPLES == pytest.approx(table, abs=5e-4)
    assert f"{table:.3f}"[:-1] in checked(row).finding.steps[-1]


@pytest.mark.parametrize(
    ("row", "mended"),
    [
        ("004-5", {"sensitivity": 2}),
        ("004-6", {"sample": "secret"}),
        ("004-6b", {"sample": "secret"}),
        ("004-6c", {"sample": "secret", "sensitivity": 2}),
        ("004-7", {"records": [2_436, 4_989, 12_175]}),
        ("004-10", {"runs": 1}),
        ("004-9", {"pairing": "own"}),
        ("004-4", {"sensitivity": 1.414214}),
    ],
)
def test_what_is_mended_is_supported(row: str, mended: dict[str, float | str | list[int]]) -> None:
    assert checked(row, **mended).verdict == "SUPPORTED"


def test_one_fault_is_enough_to_refute_the_code() -> None:
    assert checked("004-6c", sample="secret").verdict == "REFUTED"
    assert checked("004-6c", sensitivity=2).verdict == "REFUTED"


def test_the_share_of_the_first_label_for_all() -> None:
    mu = mu_for(EPSILON, DELTA, Fraction(DRAWN, BIORXIV[0]))
    results = [epsilon_of(mu, DELTA, Fraction(DRAWN, records)) for records in BIORXIV]
    assert [each + EXAMPLES for each in results] == pytest.approx([5, 6.344, 7.410, 6.178], abs=5e-4)
    assert max(results) * (1 - 1e-9) <= lower("004-7") <= max(results) * (1 + 1e-9)
    assert "5, 6.34433, 7.40979, 6.17833" in checked("004-7").finding.steps[-1]


# Sensitivities


def test_a_histogram_moves_by_the_root_of_two() -> None:
    exact = delta_of(mu_for(0.1, 1e-5) * math.sqrt(2), 0.1)
    assert lower("004-4") == pytest.approx(2.540668e-4, rel=5e-7)
    assert exact * (1 - 1e-9) <= lower("004-4") <= upper("004-4") <= exact * (1 + 1e-9)


@pytest.mark.parametrize("records", [1, 2, 10, 100])
def test_pairs_by_row_number(records: int) -> None:
    """Differences −40, and 60 from the first removed record on, are −1 and 1."""
    before, after = [-40] * records, [100 * i - 40 - 100 * (i - 1) for i in range(1, records)]
    moved = abs(sum(map(sign, after)) - sum(map(sign, before)))
    assert lower("004-9", records=records) == moved == 2 * records - 1
    assert checked("004-9", records=records).verdict == ("REFUTED" if records > 1 else "UNPROVEN")


def sign(value: int) -> int:
    return (value > 0) - (value < 0)
