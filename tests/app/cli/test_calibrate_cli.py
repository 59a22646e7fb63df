"""`dpassay calibrate` as a person meets it: answers that meet their targets, known values, one-line errors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import command
import pytest
from dp_accounting import dp_event

from dpassay.accounting import accountant
from dpassay.jobs.mechanisms import CALIBRATED

EPSILON = ["--target-epsilon", 1, "--delta", 1e-5]
SECRET = ["secret", "--p", 1e-4, "--occurrences", 80, "--sampling-probability", 0.01]
MEAN = ["selection", "--temperature", 1.5, "--batch-size", 64]


def dpassay(*arguments: object) -> command.Result:
    return command.run("calibrate", *arguments)


def found(*arguments: object) -> dict[str, Any]:
    result: dict[str, Any] = command.written("calibrate", *arguments)
    assert result["bound"]["rigor"] == "certified"
    return result


def steps_of(sigma: float, rate: float, steps: int) -> dp_event.DpEvent:
    return dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma)), steps)


@pytest.mark.parametrize(("epsilon", "published"), [(1, 3.730632), (5, 0.891868), (10, 0.499889)])
def test_noise_of_one_gaussian(epsilon: float, published: float) -> None:
    """σ/Δ of the analytic Gaussian mechanism at δ = 1e-5; the answer lies above it by at most the tolerance."""
    answer = found("gaussian", "--target-epsilon", epsilon, "--delta", 1e-5, "--count", 1, "--tolerance", 1e-4)
    assert published - 5e-7 <= answer["value"] <= published * (1 + 1.1e-4)
    assert answer["bound"]["value"] <= epsilon
    assert answer["parameter"] == "noise_multiplier"


def test_mu_of_gaussians_is_exact() -> None:
    """Four releases are √4/σ-GDP: σ = 2 for μ = 1."""
    assert found("gaussian", "--target-mu", 1, "--count", 4)["value"] == pytest.approx(2, rel=1.1e-3)
    assert found("gaussian", "--target-mu", 1, "--count", 4)["value"] >= 2


def test_a_number_of_releases_for_a_trade_off() -> None:
    """Φ(Φ⁻¹(0.95) − √n/3) ≥ 1/2 up to √n = 3·1.6448536, n = 24.3."""
    answer = found("gaussian", "--find", "count", "--noise-multiplier", 3, "--target-beta", 0.5, "--alpha", 0.05)
    assert (answer["value"], answer["beyond"]) == (24, 25)
    assert answer["refuted"] is True


@pytest.mark.parametrize(
    ("find", "arguments"),
    [
        ("noise", ["--sampling-probability", 0.01, "--steps", 1000]),
        ("rate", ["--noise-multiplier", 1.5, "--steps", 1000]),
        ("steps", ["--noise-multiplier", 1.5, "--sampling-probability", 0.01]),
    ],
)
def test_every_parameter_of_dp_sgd(find: str, arguments: list[object]) -> None:
    """The accountant itself says that the target is met at the answer, and not just beyond it."""
    answer = found("dp-sgd", *EPSILON, "--find", find, *arguments)
    given = {
        str(name).strip("-").replace("-", "_"): value
        for name, value in zip(arguments[::2], arguments[1::2], strict=True)
    }
    for value, meets in ((answer["value"], True), (answer["beyond"], False)):
        parameters: dict[str, Any] = {**given, answer["parameter"]: int(value) if find == "steps" else value}
        event = steps_of(parameters["noise_multiplier"], parameters["sampling_probability"], parameters["steps"])
        # Asked at a width of 1e-4, the bound decides wherever the calibration's own bound, of width 1e-3, does.
        interval = accountant("lattice", "add_remove").compose(event).epsilon(1e-5).interval
        assert interval is not None
        assert interval.lower <= 1 if meets else interval.upper > 1
    assert answer["bound"]["value"] <= 1
    assert abs(answer["beyond"] / answer["value"] - 1) <= 1.1e-3


def test_adjacency_is_heard() -> None:
    """Exchanging a record needs twice the noise of adding one, where nothing is sampled."""
    first, second = (
        found("gaussian", *EPSILON, "--count", 1, "--adjacency", adjacency)["value"]
        for adjacency in ("add_remove", "replace_one")
    )
    assert second == pytest.approx(2 * first, rel=2e-3)


def test_the_clip_of_a_published_row() -> None:
    """Clip 9, denominator 64, temperature 1.5, 367 tokens cost 9.888715 at δ = 108000^−1.1 by zCDP."""
    target = ["--target-epsilon", 9.888715, "--delta", 108000**-1.1, "--method", "zcdp"]
    assert found(*MEAN, *target, "--count", 367)["value"] == pytest.approx(9, rel=1.1e-3)
    steps = found(*MEAN, *target, "--find", "steps", "--clip", 9)
    assert steps["value"] in (366, 367)  # the published ε has seven digits
    assert steps["beyond"] == steps["value"] + 1


def test_the_noise_of_a_secret() -> None:
    """80 records drawn with probability 0.01: σ = 5 makes 1e-4 into 2.402890e-4."""
    answer = found(*SECRET, "--target-r", 2.402890e-4, "--rounds", 1)
    assert answer["value"] == pytest.approx(5, rel=1.1e-3)
    assert answer["bound"]["quantity"] == "r"
    assert answer["bound"]["adjacency"] == "secret"
    bare = found(*SECRET, "--target-r", 0.6, "--rounds", 1)
    # Without noise r = 1 − w₀ + w₀ p with w₀ = 0.99^80: that is 0.5525, good enough.
    assert bare["value"] == 0
    assert bare["bound"]["value"] == pytest.approx(1 - 0.99**80 * (1 - 1e-4), rel=1e-9)


def test_the_rounds_of_a_secret() -> None:
    """Ten rounds at σ = 2 make 1e-4 into 0.0162015."""
    answer = found(*SECRET, "--target-r", 0.01625, "--find", "rounds", "--sigma", 2)
    assert (answer["value"], answer["beyond"]) == (10, 11)


def test_sentences_round_to_where_more_privacy_is() -> None:
    result = dpassay("gaussian", *EPSILON, "--count", 1)
    assert result.returncode == 0, result.stderr
    first, second = result.stdout.splitlines()
    printed = float(first.removeprefix("noise multiplier ").split(":")[0])
    exact = found("gaussian", *EPSILON, "--count", 1)["value"]
    assert exact <= printed <= exact * (1 + 1e-5)
    assert "ε ≤ " in first
    assert "certified, by lattice" in first
    assert "it does not: ε ≥ 1" in second
    steps = dpassay("gaussian", *EPSILON, "--find", "count", "--noise-multiplier", 50)
    assert steps.stdout.startswith("count ")
    assert math.isclose(float(steps.stdout.split(":")[0].removeprefix("count ")), 50**2 / 3.730632**2, rel_tol=0.01)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dp-sgd"], "give one of --target-epsilon"),
        (["dp-sgd", *EPSILON, "--steps", 10], "--find noise needs --sampling-probability"),
        (
            ["dp-sgd", *EPSILON, "--noise-multiplier", 1, "--sampling-probability", 0.1, "--steps", 10],
            "so leave it out",
        ),
        (["dp-sgd", *EPSILON, "--find", "luck"], "find must be one of noise, rate, steps"),
        (["dp-sgd", *EPSILON, "--sampling-probability", 2, "--steps", 10], "sampling_probability must be between"),
        (["dp-sgd", *EPSILON, "--sampling-probability", 0.1, "--steps", 0], "steps must be at least 1"),
        (["gaussian", "--target-epsilon", 1, "--count", 1], "--target-epsilon goes with --delta"),
        (["gaussian", "--target-beta", 0.5, "--delta", 0.1, "--count", 1], "--target-beta goes with --alpha"),
        (["gaussian", *EPSILON, "--target-mu", 1, "--count", 1], "give one of --target-epsilon"),
        (["gaussian", "--target-epsilon", -1, "--delta", 1e-5, "--count", 1], "epsilon must be at least 0"),
        (["gaussian", *EPSILON[:3], 1, "--count", 1], "delta must be strictly between 0 and 1"),
        (["gaussian", *EPSILON, "--count", 1, "--adjacency", "sideways"], "adjacency must be one of"),
        (["gaussian", *EPSILON, "--count", 1, "--method", "magic"], "method must be one of"),
        (["gaussian", *EPSILON, "--count", 1, "--method", "basic"], "basic sums pure ε"),
        (["gaussian", *EPSILON, "--count", 1, "--tolerance", 0], "tolerance"),
        (["gaussian", *EPSILON, "--find", "count", "--noise-multiplier", 0.1], "is certified to give"),
        (["dp-sgd", "--target-mu", 1, "--sampling-probability", 0.1, "--steps", 10], "without --delta: gdp"),
        ([*MEAN, *EPSILON, "--count", 3, "--adjacency", "zero_out"], "null record"),
        ([*SECRET, "--target-r", 1e-5, "--rounds", 1], "r must be at least p"),
        ([*SECRET, "--target-r", 0.1], "--find noise needs --rounds"),
        (["secret", "--p", 0.1, "--target-r", 0.5, "--rounds", 1], "give either --weights"),
    ],
)
def test_bad_input_is_one_line(arguments: list[object], says: str) -> None:
    result = dpassay(*arguments)
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("dpassay: ")
    assert says in result.stderr


@pytest.mark.grid
@pytest.mark.parametrize("command", sorted(CALIBRATED))
def test_every_command_shows_an_example_that_runs(command: str, tmp_path: Path) -> None:
    shown = " ".join(dpassay(command, "--help").stdout.split())
    example = shown.split("Example: dpassay calibrate ")[1]
    result = dpassay(*example.split(), "-o", tmp_path / "figure.svg")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "figure.svg").read_text(encoding="utf-8").startswith("<svg")


def test_targets_in_other_words_are_those_of_the_curve() -> None:
    """An advantage is δ(0), and a true positive rate 1 − β(α)."""
    training = ["dp-sgd", "--sampling-probability", 0.01, "--steps", 1000]
    advantage = found(*training, "--target-advantage", 0.1)
    lattice = accountant("lattice", "add_remove")
    at = lattice.compose(steps_of(advantage["value"], 0.01, 1000))
    assert 0.099 < at.delta(0.0).value <= 0.1
    rate = found(*training, "--target-tpr", 0.02, "--fpr", 0.01)
    at = lattice.compose(steps_of(rate["value"], 0.01, 1000))
    assert 0.0199 < at.blowup(0.01).value <= 0.02
    assert "The advantage of any test is at most 0.09" in dpassay(*training, "--target-advantage", 0.1).stdout


def test_records_batch_size_and_epochs_say_rate_and_steps() -> None:
    words = ["--records", 60000, "--batch-size", 256, "--epochs", 20]
    said = found("dp-sgd", *EPSILON, *words)
    same = found("dp-sgd", *EPSILON, "--sampling-probability", 256 / 60000, "--steps", 4688)
    assert said["value"] == same["value"]
    assert (said["sampling_probability"], said["steps"]) == (256 / 60000, 4688)
    more = found("dp-sgd", *EPSILON, *words[:4], "--find", "steps", "--noise-multiplier", said["value"])
    assert more["value"] >= 4688


def test_users_need_more_noise_than_records() -> None:
    training = ["dp-sgd", *EPSILON, "--sampling-probability", 0.01, "--steps", 100]
    record, user = found(*training), found(*training, "--unit", "user", "--records-per-user", 3)
    assert user["value"] > 1.2 * record["value"]
    assert user["bound"]["unit"] == "user(3)"
    assert found(*training, "--unit", "user", "--sampled-by", "user")["value"] == record["value"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--unit", "user"], "--unit user also needs how users are drawn"),
        (["--records-per-user", 3], "go with --unit user, not with record"),
        (["--unit", "user", "--sampled-by", "user", "--records-per-user", 3], "leave --records-per-user or"),
        (["--unit", "user", "--sampled-by", "day"], "sampled_by must be one of record, user"),
        (["--records", 100], "--records and --batch-size go together"),
        (["--records", 100, "--batch-size", 10], "give either --sampling-probability, or --records and"),
        (["--epochs", 3], "give either --steps, or --epochs"),
    ],
)
def test_words_that_do_not_go_together_are_one_line(arguments: list[object], says: str) -> None:
    result = dpassay("dp-sgd", *EPSILON, "--sampling-probability", 0.01, "--steps", 100, *arguments)
    assert result.returncode == 2
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1
