"""What `dpassay calibrate CLAIM` offers is what other accounting, and a verdict, say of the same claim."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import command
import dp_accounting
import mpmath as mp
import numpy as np
import pytest
import yaml
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from scipy.stats import binom
from small_claims import GENERATORS, written

import dpassay
from dpassay.accounting.calibration.parameter_search import ParameterSearch
from dpassay.accounting.guarantees import Guarantee, SecretProtection
from dpassay.claims.base import Claim
from dpassay.generators import registry
from dpassay.generators.aug_pe.claim import AugPEClaim
from dpassay.generators.choices import Choice, ParameterChoices
from dpassay.jobs.account import account
from dpassay.jobs.choices import ClaimCalibration, calibrate_claim

ROOT = Path(__file__).resolve().parents[3]
CLAIMS = ROOT / "examples" / "claims"
URL = "http://127.0.0.1:9/v1/completions"
TOLERANCE = 1e-3


def least(claim: Claim, method: str = "lattice") -> float:
    """The certified bound that `dpassay account` has on a claimed ε (at its δ), or r."""
    bounds = account(claim, method=method).bounds
    return min(bound.value for bound in bounds if bound.rigor.may_support and bound.delta == _delta(claim))


def _delta(claim: Claim) -> Any:
    """The claimed δ; None if there is none."""
    return getattr(claim.claimed(), "delta", None)


def gaussian_delta(mu: float, epsilon: float) -> mp.mpf:
    """δ(ε) of a Gaussian mechanism (Balle and Wang 2018), with 50 digits."""
    with mp.workdps(50):
        m, e = mp.mpf(mu), mp.mpf(epsilon)
        return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)


# Tokens


@pytest.fixture(scope="module")
def tokens() -> ClaimCalibration:
    return calibrate_claim(CLAIMS / "keys-mean.yaml", target_epsilon=1.0, vary={"batch_size": [64, 128, 255]})


def test_one_more_token_is_not_certified(tokens: ClaimCalibration) -> None:
    assert [choice.parameters["tokens"] for choice in tokens.choices] == [5, 23, 92]
    for choice in tokens.choices:
        more = choice.claim.with_parameters(tokens=choice.parameters["tokens"] + 1)
        assert choice.beyond == choice.parameters["tokens"] + 1
        assert least(choice.claim) == choice.bound.value <= 1.0 < least(more)


def test_tokens_lie_between_those_of_a_known_attack_and_of_zcdp(tokens: ClaimCalibration) -> None:
    """ρ = kη²/8 bounds k selections of range η from above; randomised response of ε = η/2 is one, exactly known."""
    delta = _delta(tokens.choices[0].claim)
    for choice in tokens.choices:
        parameters = choice.claim.parameters
        eta, most = 2 * parameters.clip / (parameters.denominator * parameters.temperature), parameters.tokens + 1
        rho = most * eta**2 / 8
        assert choice.bound.value <= rho + 2 * math.sqrt(rho * math.log(1 / delta))
        chance, counts = 1 / (1 + math.exp(-eta / 2)), np.arange(parameters.tokens + 1)
        losses = (2 * counts - parameters.tokens) * eta / 2
        above = np.maximum(-np.expm1(choice.bound.value - losses), 0.0)
        assert binom.pmf(counts, parameters.tokens, chance) @ above <= delta


def test_the_denominator_stays_in_proportion(tokens: ClaimCalibration) -> None:
    for choice in tokens.choices:
        assert choice.claim.parameters.denominator == choice.claim.parameters.batch_size
        assert f"denominator: {choice.parameters['batch_size']}" in tokens.parameters_line(choice)


def test_documents_and_tokens_of_all_slots_are_counted(tokens: ClaimCalibration) -> None:
    facts = tokens.choices[-1].facts
    assert facts == {"slots": 16, "tokens in all": 16 * 92, "documents": 16 * (92 // 16)}


def test_the_guide_shows_these_rows(tokens: ClaimCalibration) -> None:
    page = (ROOT / "docs" / "calibration.md").read_text(encoding="utf-8")
    columns, rows = tokens.table()
    for row in (columns, *rows):
        assert f"| {' | '.join(row)} |" in page


def test_the_guide_names_every_mechanism_that_leaves_something_to_choose() -> None:
    page = (ROOT / "docs" / "calibration.md").read_text(encoding="utf-8")
    table = page[page.index("| mechanism | what is tried") :].partition("\n\n")[0]
    named = set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE))
    assert named == {name for name in registry.CLAIMS if (ROOT / "generators" / name / "choices.py").exists()}


def test_a_public_centre_allows_what_the_page_says() -> None:
    """c = 4 about public logits in place of c = 10."""
    claim = dpassay.read_claim(CLAIMS / "keys-mean.yaml").with_parameters(center="public", clip=4.0)
    (choice,) = calibrate_claim(claim, target_epsilon=1.0, vary={"batch_size": [255]}).choices
    more = choice.claim.with_parameters(tokens=choice.parameters["tokens"] + 1)
    assert choice.parameters["tokens"] == 581
    assert least(choice.claim) <= 1.0 < least(more)


def test_medians_are_counted_at_their_worst_case() -> None:
    """Each token costs a pure 4c/τ, rounding included, so 100 of them are 100 · 4 · 10/1.2."""
    result = calibrate_claim(CLAIMS / "keys-median.yaml", target_epsilon=100 * 40 / 1.2 + 1e-6)
    assert {choice.parameters["tokens"] for choice in result.choices} == {100}
    assert any("ex-post ε" in note for note in result.notes)
    short = calibrate_claim(CLAIMS / "keys-median.yaml", target_epsilon=100 * 40 / 1.2 - 1e-6)
    assert {choice.parameters["tokens"] for choice in short.choices} == {99}


# Noise


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_noise_of_votes_is_that_of_one_gaussian(epsilon: float) -> None:
    result = calibrate_claim(CLAIMS / "notes-aug-pe.yaml", target_epsilon=epsilon)
    assert [choice.parameters["rounds"] for choice in result.choices] == [1, 2, 3, 5, 10, 20]
    for choice in result.choices:
        rounds, sigma, delta = choice.parameters["rounds"], choice.parameters["noise_multiplier"], _delta(choice.claim)
        assert choice.beyond is not None
        assert gaussian_delta(math.sqrt(rounds) / sigma, epsilon) <= delta
        assert gaussian_delta(math.sqrt(rounds) / choice.beyond, epsilon) > delta
        assert 0 < sigma / choice.beyond - 1 <= 1.02 * TOLERANCE


def test_votes_and_vectors_share_the_guarantee() -> None:
    """Replacing a record: each release is a Gaussian of μ = 1/its multiplier."""
    result = calibrate_claim(CLAIMS / "notes-vectors.yaml", target_epsilon=3.0)
    assert result.choices[-1].parameters["shots"] == 0
    for choice in result.choices:
        votes = choice.parameters["shots_noise_multiplier"]
        for noise, meets in ((choice.parameters["noise_multiplier"], True), (choice.beyond, False)):
            assert noise is not None
            mu = math.hypot(1 / noise, 1 / votes if choice.parameters["shots"] else 0.0)
            assert (gaussian_delta(mu, 3.0) <= 1e-5) is meets


def test_noise_of_steps_is_that_of_another_library() -> None:
    """dp_accounting's PLD accountant errs towards more noise, and its bisection stops within 1e-3."""
    settings = {"batch_size": [128], "steps": [60]}
    result = calibrate_claim(CLAIMS / "table-two-stage.yaml", target_epsilon=2.0, vary=settings)
    for choice in result.choices:

        def event(noise: float, rate: float = choice.parameters["batch_size"] / 2048) -> dp_event.DpEvent:
            step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
            return dp_event.SelfComposedDpEvent(step, 60)

        theirs = dp_accounting.calibrate_dp_mechanism(PLDAccountant, event, 2.0, 1e-5, tol=1e-3)
        assert choice.parameters["noise_multiplier"] == pytest.approx(theirs, abs=2e-3)
        epochs = choice.parameters["batch_size"] * 60 / 2048
        noise = choice.parameters["noise_multiplier"] / choice.parameters["batch_size"]
        assert choice.facts == pytest.approx({"epochs": epochs, "noise of a mean gradient": noise})


def test_rho_of_marginals_is_the_largest_that_the_conversion_allows() -> None:
    """δ of ρ-zCDP at ε, minimised over orders, with 50 digits (Canonne, Kamath and Steinke 2020, Corollary 13)."""

    def delta(rho: float, epsilon: float) -> mp.mpf:
        with mp.workdps(50):
            r, e = mp.mpf(rho), mp.mpf(epsilon)
            orders = (1 + mp.mpf(10) ** (mp.mpf(step) / 500) for step in range(-1000, 1500))
            return min(mp.exp((a - 1) * (a * r - e)) / a * (1 - 1 / a) ** (a - 1) for a in orders)

    result = calibrate_claim(CLAIMS / "table-marginals.yaml", target_epsilon=1.0)
    for choice in result.choices:
        assert choice.beyond is not None
        assert choice.parameters["rho"] < choice.beyond <= choice.parameters["rho"] * (1 + 1.02 * TOLERANCE)
        assert delta(choice.parameters["rho"], 1.0) <= 1e-5 * (1 + 1e-5) < 1e-5 * (1 + 1e-4) < delta(choice.beyond, 1.0)


@pytest.mark.parametrize("inclusion", ["coins", "weights"])
def test_secrets_have_the_r_that_is_asked_for(inclusion: str) -> None:
    claim = dpassay.read_claim(CLAIMS / "secrets-evolution.yaml").with_parameters(inclusion=inclusion)
    result = calibrate_claim(claim, target_r=0.005, vary={"rounds": [1, 4]})
    once, four = result.choices
    for choice in result.choices:
        assert choice.claim.parameters.r == 0.005
        assert choice.claim.claimed() == SecretProtection(0.001, 0.005)
        assert least(choice.claim, "secret_protection") == choice.bound.value <= 0.005
    ratio = four.facts["noise of counts"] / once.facts["noise of counts"]
    assert ratio == pytest.approx(2.0, rel=1e-6 if inclusion == "weights" else 0.05)


def test_a_secret_with_a_budget_of_its_own_counts() -> None:
    """Some keys have a smaller r: all parts must hold, and the bound shown is that of the claim's own r."""
    body = yaml.safe_load((CLAIMS / "secrets-evolution.yaml").read_text())
    body["parameters"]["secrets"].append({"pattern": "[0-9]{3}7[0-9]", "p": 0.001, "r": 0.002})
    result = calibrate_claim(dpassay.make_claim(body), vary={"rounds": [2]})
    (choice,) = result.choices
    accounted = account(choice.claim)
    assert [budget.r for budget in accounted.budgets] == [0.01, 0.002]
    assert choice.bound.value == accounted.bounds[0].value <= 0.01
    assert accounted.bounds[1].value <= 0.002


# Every generator and every guarantee


@pytest.fixture(scope="module", params=GENERATORS)
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ClaimCalibration]:
    folder = tmp_path_factory.mktemp("small") / request.param
    written(folder, request.param, URL)
    return folder, calibrate_claim(folder / "claim.yaml")


def test_each_choice_is_what_an_account_of_its_claim_says(small: tuple[Path, ClaimCalibration]) -> None:
    _, result = small
    assert result.choices
    for choice in result.choices:
        assert choice.bound.value == least(choice.claim, choice.bound.method)
        assert choice.bound.rigor.may_support


def test_lines_for_the_claim_are_the_choice(small: tuple[Path, ClaimCalibration]) -> None:
    folder, result = small
    for choice in result.choices:
        body = yaml.safe_load((folder / "claim.yaml").read_text())
        for line in (result.guarantee_line, result.parameters_line(choice)):
            assert "\n" not in line
            body |= yaml.safe_load(line)
        (folder / "chosen.yaml").write_text(yaml.safe_dump(body))
        assert registry.read_claim(folder / "chosen.yaml") == choice.claim


def test_json_has_all_of_it(small: tuple[Path, ClaimCalibration]) -> None:
    _, result = small
    body = json.loads(json.dumps(result.to_json()))
    assert [row["parameters"] for row in body["choices"]] == [dict(choice.parameters) for choice in result.choices]
    assert [row["bound"]["value"] for row in body["choices"]] == [choice.bound.value for choice in result.choices]
    columns, rows = result.table()
    assert all(len(row) == len(columns) for row in rows)
    assert "<table" in result._repr_html_()


@pytest.mark.parametrize(
    ("target", "quantity"),
    [
        ({"target_epsilon": 20.0, "delta": 1e-6}, "epsilon"),
        ({"target_epsilon": 20.0}, "epsilon"),
        ({"target_mu": 0.8}, "mu"),
        ({"target_rho": 0.4}, "rho"),
    ],
)
def test_every_kind_of_target(target: dict[str, float], quantity: str) -> None:
    body = yaml.safe_load((CLAIMS / "keys-mean.yaml").read_text())
    del body["guarantee"]
    (choice,) = calibrate_claim(dpassay.make_claim(body), vary={"batch_size": [128]}, **target).choices  # type: ignore[arg-type]
    more = choice.claim.with_parameters(tokens=choice.parameters["tokens"] + 1)
    limit = next(iter(target.values()))
    assert choice.bound.quantity == quantity
    values = [_least_of(claim, quantity) for claim in (choice.claim, more)]
    assert values[0] == choice.bound.value <= limit < values[1]


def _least_of(claim: Claim, quantity: str) -> float:
    from dpassay.accounting.registry import upper_bounds

    bounds = upper_bounds(claim.plan().event, claim.claimed(), adjacency=claim.adjacency, unit=claim.unit)
    return min(bound.value for bound in bounds if bound.rigor.may_support and bound.quantity == quantity)


def test_a_claim_of_rdp_keeps_its_order() -> None:
    body = yaml.safe_load((CLAIMS / "notes-aug-pe.yaml").read_text())
    body["guarantee"] = {"type": "rdp", "alpha": 8.0, "epsilon": 1.0}
    (choice,) = calibrate_claim(dpassay.make_claim(body), target_epsilon=0.5, vary={"rounds": [4]}).choices
    assert choice.parameters["noise_multiplier"] == pytest.approx(math.sqrt(4 * 8.0 / 2 / 0.5), rel=TOLERANCE)


# Data and mistakes


def test_no_record_is_read(tmp_path: Path) -> None:
    body = yaml.safe_load((CLAIMS / "notes-aug-pe.yaml").read_text())
    body["data"] = {"source": "file", "path": str(tmp_path / "nowhere.jsonl")}
    assert calibrate_claim(dpassay.make_claim(body), vary={"rounds": [1]}).choices


def test_settings_that_are_no_claim_are_left_out_unless_they_were_asked_for() -> None:
    """Each label keeps 16 centres, for which the larger batches have too few slots."""
    body = yaml.safe_load((CLAIMS / "keys-mean.yaml").read_text())
    body["parameters"] |= {"centres": "centres.safetensors", "kept_centres": 16, "batch_size": 128}
    claim = dpassay.make_claim(body)
    sizes = [choice.parameters["batch_size"] for choice in calibrate_claim(claim, target_epsilon=1.0).choices]
    assert sizes == [32, 64, 128, 256]
    with pytest.raises(dpassay.InputError, match="kept_centres must be at most 8"):
        calibrate_claim(claim, target_epsilon=1.0, vary={"batch_size": [512]})


def test_bounds_rest_on_what_those_of_a_run_do() -> None:
    """Rows that are packed keep a run from a verdict, whatever its parameters are."""
    claim = dpassay.read_claim(CLAIMS / "keys-mean.yaml").with_parameters(rows="packed")
    result = calibrate_claim(claim, target_epsilon=0.5, vary={"batch_size": [128]})
    assert result.choices[0].bound.rigor == "estimate"
    assert any("packs rows" in sentence for sentence in result.sentences())
    sound = calibrate_claim(CLAIMS / "notes-aug-pe.yaml", vary={"rounds": [1]})
    assert set(sound.assumptions) <= set(sound.choices[0].bound.assumptions) != set()


class TwoParts(ParameterChoices[AugPEClaim]):
    """A claim with a second part, which needs twice the noise."""

    def search(self, claim: AugPEClaim) -> ParameterSearch:
        return ParameterSearch("noise_multiplier", (1e-3, 1e6), 5.0, decreasing=True)

    def settings(self) -> list[dict[str, Any]]:
        return [{"rounds": 1}]

    def parts(self, claim: AugPEClaim) -> list[tuple[Guarantee, dp_event.DpEvent]]:
        noise = claim.parameters.noise_multiplier
        return [*super().parts(claim), (claim.claimed(), dp_event.GaussianDpEvent(noise / 2))]


def test_all_parts_of_a_claim_must_hold() -> None:
    claim: Any = dpassay.read_claim(CLAIMS / "notes-aug-pe.yaml")
    (one,) = calibrate_claim(claim, vary={"rounds": [1]}).choices
    (two,) = TwoParts(claim).choose()
    assert isinstance(two, Choice)
    assert two.parameters["noise_multiplier"] == pytest.approx(2 * one.parameters["noise_multiplier"], rel=3e-3)


def test_a_setting_that_nothing_meets_is_said() -> None:
    result = calibrate_claim(CLAIMS / "keys-mean.yaml", target_epsilon=0.5, vary={"batch_size": [16, 255]})
    assert [item.parameters for item in result.unmet] == [{"batch_size": 16, "tokens": 1}]
    assert result.unmet[0].bound is not None
    assert result.unmet[0].bound.value > 0.5
    printed = command.run(
        "calibrate", CLAIMS / "keys-mean.yaml", "--target-epsilon", 0.5, "--vary", "batch_size=16,255", "--no-time"
    )
    assert "Not met: batch_size 16, tokens 1, with ε ≤ " in printed.stdout
    assert printed.returncode == 0


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("keys-median", ["--target-epsilon", 3], "tokens 1, with ε ≤ 33.3334; raise the target, or lower clip"),
        ("keys-unprotected", ["--target-epsilon", 3], "aggregate none protects nothing"),
        ("declared-training", ["--target-epsilon", 3], "leaves nothing to choose"),
        ("keys-mean", ["--target-epsilon", 0], "target_epsilon must be"),
        ("keys-mean", ["--target-epsilon", "inf"], "target_epsilon must be"),
        ("keys-mean", ["--target-epsilon", 1, "--target-mu", 1], "give one of --target-epsilon, --target-rho"),
        ("keys-mean", ["--target-r", 0.1], "does not apply to unit record"),
        ("secrets-evolution", ["--target-epsilon", 1], "does not apply to unit secret; give --target-r"),
        ("secrets-evolution", ["--target-r", 0.0005], "r must be at least p"),
        ("secrets-evolution", ["--delta", 1e-5], "--delta: goes with --target-epsilon"),
        ("keys-mean", ["--target-rho", 1, "--delta", 1e-5], "--delta: goes with --target-epsilon"),
        ("keys-mean", ["--delta", 1], "delta must be"),
        ("keys-mean", ["--vary", "tokens=1,2"], "--vary tokens: this parameter is what is found"),
        ("keys-mean", ["--vary", "batchsize=1,2"], "batch_size"),
        ("keys-mean", ["--vary", "batch_size=many"], "parameters.batch_size"),
        ("keys-mean", ["--vary", "batch_size"], "must be the name of a parameter and values"),
        ("keys-mean", ["--vary", "batch_size=["], "must be the name of a parameter and values"),
        ("keys-mean", ["--vary", "clip=1", "--vary", "clip=2"], "--vary clip: is given twice"),
        ("keys-mean", ["--vary", "seed=" + ",".join("1" * 101)], "gives 101 combinations of values"),
    ],
)
def test_a_mistake_is_one_line(name: str, arguments: list[object], said: str) -> None:
    result = command.run("calibrate", CLAIMS / f"{name}.yaml", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr


@pytest.mark.parametrize("number", ["1" * 400, "nan", "-0.0", "1e308", "5e-324", "2024-99-99", "{a: 1}"])
@pytest.mark.parametrize("option", ["--target-epsilon", "--target-rho", "--delta", "--vary"])
def test_numbers_beyond_reason_are_answered_or_refused_in_a_line(option: str, number: str) -> None:
    given = [option, f"rounds={number}"] if option == "--vary" else [option, number, "--vary", "rounds=2"]
    result = command.run("calibrate", CLAIMS / "notes-aug-pe.yaml", *given, "--no-time")
    assert result.returncode in (0, 2)
    assert result.stderr.count("\n") == (1 if result.returncode else 0)


def test_a_claim_without_a_guarantee_needs_a_target() -> None:
    body: dict[str, Any] = yaml.safe_load((CLAIMS / "keys-mean.yaml").read_text())
    del body["guarantee"]
    with pytest.raises(dpassay.InputError, match="has no guarantee; give --target-epsilon"):
        calibrate_claim(dpassay.make_claim(body))


def test_a_claim_of_nothing_leaves_nothing_to_choose() -> None:
    body: dict[str, Any] = yaml.safe_load((CLAIMS / "keys-mean.yaml").read_text())
    body["guarantee"]["epsilon"] = 0.0
    with pytest.raises(dpassay.InputError, match=r"guarantee\.epsilon: is 0"):
        calibrate_claim(dpassay.make_claim(body))


def test_the_word_claim_may_be_left_out() -> None:
    arguments = [CLAIMS / "notes-aug-pe.yaml", "--vary", "rounds=2", "--no-time", "--json"]
    assert command.run("calibrate", "claim", *arguments).stdout == command.run("calibrate", *arguments).stdout != ""
    assert "'dp-sdg' is neither a claim nor one of dp-sgd" in command.run("calibrate", "dp-sdg").stderr


def test_a_choice_is_supported_when_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a verdict certifies of the run is the bound of the choice."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    body = yaml.safe_load((CLAIMS / "keys-mean.yaml").read_text())
    body |= {"public": {"records": 64, "labels": ["key"], "context_tokens": 24}, "audits": []}
    body["parameters"] |= {"batch_size": 64, "denominator": 64, "tokens": 1}
    (choice,) = calibrate_claim(dpassay.make_claim(body), target_epsilon=1.0, vary={"batch_size": [64]}).choices
    assert isinstance(choice, Choice)
    result = dpassay.assay(choice.claim, tmp_path / "run")
    assert result.verdict == "SUPPORTED"
    assert result.best_upper is not None
    assert result.best_upper.value == choice.bound.value
