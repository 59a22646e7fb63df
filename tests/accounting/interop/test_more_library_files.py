"""Files of jax_privacy, opake, OpenDP, SmartNoise, private evolution, dpsynth and Safe Synthesizer, against what those
libraries answered (`tests/helpers/make_interop_files.py`), and against closed forms."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from scipy import optimize, special

from dpassay.accounting import Bound, account, accountant
from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.events import EpsilonDeltaDpEvent, TruncatedPoissonSampledDpEvent
from dpassay.accounting.interop.conditions import Sampler
from dpassay.accounting.interop.read import read_state
from dpassay.accounting.interop.state import Reading, RepeatedEvent, SampledGaussian, Stated, read_as

FILES = Path(__file__).parent / "files"
ANSWERS = json.loads((FILES / "answers.json").read_text(encoding="utf-8"))


def reading_of(name: str, **given: Any) -> Reading:
    return read_as(read_state(FILES / name), Stated(**given))


def bound_of(name: str, delta: float, **given: Any) -> Bound:
    reading = reading_of(name, **given)
    return account(reading.event, adjacency=reading.adjacency, delta=delta)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Balle and Wang (2018), the root of the closed form."""

    def excess(at: float) -> float:
        first, second = special.log_ndtr([mu / 2 - at / mu, -mu / 2 - at / mu])
        return math.exp(first) - math.exp(at + second) - delta

    return float(optimize.brentq(excess, 1e-6, 200))


# --- jax_privacy


@pytest.mark.parametrize(
    ("name", "adjacency", "rate", "rounds"),
    [
        ("sgd", "add_remove", 10 / 1001, 1001),
        ("bands", "add_remove", 40 / 1001, 251),
        ("split", "zero_out", 40 / 1001, 251),
    ],
)
def test_configurations_of_jax_privacy(name: str, adjacency: str, rate: float, rounds: int) -> None:
    """The event is the library's own; its ε is by a pessimistic PLD, within its grid of 1e-4 of ours."""
    file = f"jax-privacy-{name}.json"
    state = read_state(FILES / file)
    assert state.parts == (SampledGaussian(1.5, rate, rounds),)
    assert (state.adjacency, state.sampler) == (Adjacency(adjacency), Sampler.POISSON)
    reading = reading_of(file)
    assert repr(reading.event) == ANSWERS[file]["event"]
    result = bound_of(file, 1e-5)
    assert result.interval is not None
    assert result.interval.lower - 1e-4 <= ANSWERS[file]["epsilon"] <= result.value + 5e-3


def test_blocks_of_a_banded_strategy_are_gaussians() -> None:
    """Six steps with two bands, where the other gradients follow what was released.

    The adversary subtracts what she can compute, and projects each block onto its column. For a record that is in steps
    0, 2 and 4 she finds three independent normal numbers around 1. Means and covariances of 40000 runs are within five
    standard errors, which another seed would miss with probability 1e-5.
    """
    rng, runs = np.random.default_rng(8), 40_000
    strategy = 0.8 * np.eye(6) + 0.6 * np.eye(6, k=-1)

    def others(step: int, released: Any) -> Any:
        """The sum of the other gradients of a step, from what was released before."""
        return (1 + step) * np.tanh(released[:, step - 1]) if step else np.ones(runs)

    gradients, released = np.zeros((runs, 6)), np.zeros((runs, 6))
    for step in range(6):
        gradients[:, step] = others(step, released) + (step % 2 == 0)
        released[:, step] = gradients @ strategy[step] + rng.normal(size=runs)
    computed = np.stack([others(step, released) for step in range(6)], axis=1)
    left = released - computed @ strategy.T
    blocks = np.stack([left @ strategy[:, step] for step in (0, 2, 4)])
    assert np.abs(blocks.mean(axis=1) - 1.0).max() < 5 / runs**0.5
    assert np.abs(np.cov(blocks) - np.eye(3)).max() < 5 * (2 / runs) ** 0.5


def test_a_truncated_configuration_of_jax_privacy() -> None:
    """Of 10001 records in 2 groups one is never sampled. The library's PLD is that of Ganesh (2025), ours is an upper
    bound by another proof: they are close where batches rarely are cut."""
    file = "jax-privacy-truncated.json"
    event = TruncatedPoissonSampledDpEvent(20 / 1001, 5000, 120, dp_event.GaussianDpEvent(1.5))
    assert read_state(FILES / file).parts == (RepeatedEvent(event, 501),)
    assert (
        "dataset_size=5000, sampling_probability=0.01998001998001998, truncated_batch_size=120"
        in (ANSWERS[file]["event"])
    )
    assert bound_of(file, 1e-5).value == pytest.approx(ANSWERS[file]["epsilon"], rel=0.1)


def test_noise_that_jax_privacy_scales_by_a_norm_it_divided_out(tmp_path: Path) -> None:
    """jax_privacy 2.3.0.dev0 with strategy (0.5, 0.1) and column_normalize: the columns of its C have norm 1, and its
    noise is 1.5·‖(0.5, 0.1)‖ = 0.765, where its own event says 1.5. For 50 rounds at a rate of 0.2 and δ = 10⁻⁵ that
    is ε = 16.50 for 5.26."""
    content = json.loads((FILES / "jax-privacy-bands.json").read_text())
    content |= {"strategy": [0.5, 0.1], "column_normalize": True, "iterations": 100}
    (tmp_path / "config").write_text(json.dumps(content))
    state = read_state(tmp_path / "config")
    (part,) = state.parts
    assert isinstance(part, SampledGaussian)
    assert part.noise_multiplier == pytest.approx(1.5 * math.sqrt(0.26), rel=1e-9)
    assert part.noise_multiplier <= 1.5 * math.sqrt(0.26)
    assert not state.exact
    reading = read_as(state, Stated())
    rounds = dp_event.PoissonSampledDpEvent(0.2, dp_event.GaussianDpEvent(1.5))
    claimed = account(dp_event.SelfComposedDpEvent(rounds, 50), adjacency="add_remove", delta=1e-5).value
    assert claimed == pytest.approx(5.26, abs=0.005)
    assert account(reading.event, adjacency="add_remove", delta=1e-5).value == pytest.approx(16.50, abs=0.01)
    assert any("counts as that much smaller" in note for note in state.notes)


# --- opake


def test_a_state_of_opake() -> None:
    state = read_state(FILES / "opake.json")
    truncated = TruncatedPoissonSampledDpEvent(0.01, 10_000, 150, dp_event.GaussianDpEvent(1.1))
    assert state.parts == (
        SampledGaussian(1.1, 0.01, 1000),
        RepeatedEvent(truncated, 10),
        RepeatedEvent(dp_event.GaussianDpEvent(5.0)),
        RepeatedEvent(EpsilonDeltaDpEvent(0.1, 1e-7)),
    )
    assert (state.delta, state.sampler, state.adjacency) == (1e-5, Sampler.POISSON, None)
    result = bound_of("opake.json", 1e-5, adjacency=Adjacency.ADD_REMOVE)
    assert 1 <= ANSWERS["opake.json"] / result.value <= 1.05, "it adds the ε of a mechanism by (ε, δ) nearly in full"
    assert not read_as(state, Stated()).exact


def test_steps_of_opake() -> None:
    """Its PLD is pessimistic, on a grid of 1e-4."""
    result = bound_of("opake-steps.json", 1e-5, adjacency=Adjacency.ADD_REMOVE).interval
    assert result is not None
    assert result.lower <= ANSWERS["opake-steps.json"] <= result.upper + 1e-3


def test_a_deep_state_of_opake_is_walked_without_recursion() -> None:
    from dpassay.accounting.interop import opake

    process: dict[str, Any] = {"type": "Identity"}
    for _ in range(20_000):
        process = {"type": "Composed", "left": process, "right": {"type": "Gaussian", "noise_multiplier": 3.0}}
    state = opake.recognize({"process": process})
    assert state is not None
    assert len(state.parts) == 20_000


# --- OpenDP


@pytest.mark.parametrize(
    ("name", "epsilon", "adjacency"),
    [
        ("laplace-sum", 10 / 7, "add_remove"),
        ("composition", 10 / 7 + 2 / 3, "add_remove"),
        ("laplace-number", 1 / 3, None),
        ("geometric", 1 / 3, None),
        ("response", math.log(6), "replace_one"),
        ("response-bool", math.log(3), "replace_one"),
    ],
)
def test_pure_measurements_of_opendp(name: str, epsilon: float, adjacency: str | None) -> None:
    """The sum of our ε is the closed form, and the library's own map at a distance of 1."""
    file = f"opendp-{name}.json"
    state = read_state(FILES / file)
    assert (None if state.adjacency is None else state.adjacency.value) == adjacency
    reading = reading_of(file)
    result = accountant("basic", reading.adjacency).compose(reading.event).epsilon(0.0).value
    assert epsilon * (1 - 1e-15) <= result <= epsilon * (1 + 1e-14)
    assert result == pytest.approx(ANSWERS[file], rel=1e-14)


@pytest.mark.parametrize(("name", "rho"), [("gaussian-count", 1 / 200), ("gaussian-vector", 1 / 18)])
def test_concentrated_measurements_of_opendp(name: str, rho: float) -> None:
    file = f"opendp-{name}.json"
    (part,) = read_state(FILES / file).parts
    assert isinstance(part, RepeatedEvent)
    assert isinstance(part.event, dp_event.ZCDpEvent)
    assert rho * (1 - 1e-15) <= part.event.rho <= rho * (1 + 1e-14)
    assert part.event.rho == pytest.approx(ANSWERS[file], rel=1e-14)


def test_a_measurement_of_opendp_with_a_fixed_delta() -> None:
    """Its map is a conversion of ρ = 1/200; ours must not be above it, nor below the exact Gaussian."""
    epsilon, delta = ANSWERS["opendp-fixed-delta.json"]
    state = read_state(FILES / "opendp-fixed-delta.json")
    assert state.delta == delta == 1e-6
    result = bound_of("opendp-fixed-delta.json", delta).value
    assert gaussian_epsilon(0.1, delta) < result <= epsilon * (1 + 1e-3)


# --- SmartNoise, dpsynth: mechanisms by (ε, δ)


def test_steps_of_smartnoise() -> None:
    """Its odometer adds δ/2 even where the ε only add up; ours may not exceed it at the same δ."""
    state = read_state(FILES / "smartnoise.json")
    assert len(state.parts) == 5
    epsilon, delta = ANSWERS["smartnoise.json"]
    assert bound_of("smartnoise.json", delta).value <= epsilon
    steps = json.loads((FILES / "smartnoise.json").read_text())["steps"]
    assert sum(item for item, _ in steps) == epsilon
    # Exactly: all five reveal everything with probability 1 − Π(1 − δ_i), else they are five responses at ε = 0.5.
    lost = 1 - mpmath.fprod(1 - mpmath.mpf(item) for _, item in steps)
    e = mpmath.mpf(1) / 2
    likely = mpmath.exp(e) / (1 + mpmath.exp(e))
    rest = mpmath.fsum(
        mpmath.binomial(5, wrong)
        * likely ** (5 - wrong)
        * (1 - likely) ** wrong
        * max(0, 1 - mpmath.exp(1 - (5 - 2 * wrong) * e))
        for wrong in range(6)
    )
    exact = float(lost + (1 - lost) * rest)
    reading = reading_of("smartnoise.json")
    result = accountant("lattice", reading.adjacency).compose(reading.event).delta(1.0).value
    assert exact <= result * (1 + 1e-12) <= exact * (1 + 2e-3)


@pytest.mark.parametrize("name", ["dpsynth.txt", "dpsynth.json"])
def test_diagnostic_information_of_dpsynth(name: str) -> None:
    """The budget was divided so that a PLD meets ε = 2, with half of what AIM's selections cost."""
    state = read_state(FILES / name)
    recorded = json.loads((FILES / "dpsynth.json").read_text())["dp_operations"]
    assert [part.count for part in state.parts if isinstance(part, RepeatedEvent)] == [3, 4, 4, 1]
    marginals, exponential, gaussian, generic = (part.event for part in state.parts if isinstance(part, RepeatedEvent))
    assert marginals == gaussian == dp_event.GaussianDpEvent(recorded[0]["sigma"])
    assert isinstance(exponential, EpsilonDeltaDpEvent)
    assert exponential.epsilon == pytest.approx(2 * math.sqrt(2) / recorded[1]["sigma"], rel=1e-14)
    assert exponential.epsilon > 2 * math.sqrt(2) / recorded[1]["sigma"]
    assert generic == EpsilonDeltaDpEvent(recorded[3]["epsilon"], recorded[3]["delta"])
    assert (state.stated, state.delta) == (2.0, 1e-6)
    assert 2.0 < bound_of(name, 1e-6).value < 3.0
    with pytest.raises(ValueError, match="the file says adjacency add_remove"):
        reading_of(name, adjacency=Adjacency.REPLACE_ONE)


def test_exponential_mechanisms_of_mst_count_once(tmp_path: Path) -> None:
    body = json.loads((FILES / "dpsynth.json").read_text())
    for item in body["dp_operations"]:
        item["name"] = item["name"].replace("AIM", "MST")
    (tmp_path / "mst.json").write_text(json.dumps(body))
    state = read_state(tmp_path / "mst.json")
    selection = state.parts[1]
    assert isinstance(selection, RepeatedEvent)
    assert isinstance(selection.event, EpsilonDeltaDpEvent)
    assert selection.event.epsilon == pytest.approx(math.sqrt(2) / body["dp_operations"][1]["sigma"], rel=1e-14)
    assert state.adjacency is Adjacency.ADD_REMOVE
    bound = account(read_as(state, Stated()).event, adjacency="add_remove", delta=1e-6)
    assert bound.value == pytest.approx(2.0, rel=0.1)


# --- private evolution, Safe Synthesizer


@pytest.mark.parametrize(("name", "count", "delta"), [("epsilon", 10, 1e-5), ("noise", 5, 1e-6)])
def test_logs_of_private_evolution(name: str, count: int, delta: float) -> None:
    """Its ε is a root of the exact curve, so it lies in our interval, to the tolerance of its solver."""
    file = f"private-evolution-{name}.txt"
    state = read_state(FILES / file)
    (part,) = state.parts
    assert isinstance(part, RepeatedEvent)
    assert isinstance(part.event, dp_event.GaussianDpEvent)
    assert (part.count, state.delta) == (count, delta)
    assert ANSWERS[file] == pytest.approx(gaussian_epsilon(math.sqrt(count) / part.event.noise_multiplier, delta))
    result = bound_of(file, delta).interval
    assert result is not None
    assert result.lower - 1e-9 <= ANSWERS[file] <= result.upper + 1e-9
    assert state.stated == pytest.approx(ANSWERS[file], rel=1e-9)


def test_a_log_of_two_runs_counts_both_in_full(tmp_path: Path) -> None:
    text = (FILES / "private-evolution-noise.txt").read_text()
    (tmp_path / "log").write_text(text + text)
    state = read_state(tmp_path / "log")
    assert [part.count for part in state.parts if isinstance(part, RepeatedEvent)] == [5, 5]
    assert not state.exact
    assert state.stated is None


@pytest.mark.parametrize(("name", "delta"), [("config", None), ("report", 1e-5)])
def test_a_configured_epsilon_proves_nothing(name: str, delta: float | None) -> None:
    """Written by hand after the library's source: it needs a GPU."""
    file = f"safe-synthesizer-{name}.json"
    state = read_state(FILES / file)
    assert (state.stated, state.delta) == (8.0, delta)
    assert any("not what ran" in note for note in state.notes)
    for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT):
        result = bound_of(file, 1e-5, adjacency=adjacency)
        assert result.value == math.inf


# --- what is refused


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("jax-privacy-sgd.json", '"noise_multiplier": 1.5', '"noise_multiplier": null', r"save it after calibrate\(\)"),
        ("jax-privacy-sgd.json", '"noise_multiplier": 1.5', '"noise_multiplier": -1', "noise_multiplier"),
        ("jax-privacy-sgd.json", '"expected_participations": 10', '"expected_participations": 2000', "sampling_prob"),
        ("jax-privacy-sgd.json", '"iterations": 1001', '"iterations": 0', "iterations"),
        ("jax-privacy-sgd.json", '"iterations": 1001', '"iterations": 1e999', "iterations"),
        ("jax-privacy-sgd.json", '"column_normalize"', '"new_field": 1, "column_normalize"', "'new_field'"),
        ("jax-privacy-sgd.json", "1.0\n ]", '"x"\n ]', "strategy must be a number"),
        ("jax-privacy-truncated.json", '"num_examples": 10001', '"num_examples": null', "needs num_examples"),
        ("opake.json", '"Gaussian"', '"AdaClip"', "'AdaClip' of opake"),
        ("opake.json", '"Composed"', '"os.system"', "dpassay does not support process 'os.system' of opake"),
        ("opake.json", '"count": 1000', '"count": 0', "count"),
        ("opake.json", '"sample_rate": 0.01', '"sample_rate": 2', "sample_rate"),
        ("opake.json", '"dataset_size": 10000', '"dataset_size": null', "given together"),
        (
            "opendp-not-known-mean.json",
            "make_mean",
            "make_mean",
            "dpassay does not support OpenDP's transformation 'make_mean'",
        ),
        (
            "opendp-laplace-sum.json",
            "make_sum",
            "make_sized_sum",
            "does not support OpenDP's transformation 'make_sized_sum'",
        ),
        ("opendp-laplace-sum.json", '"i32"', '"f64"', "of type 'f64'; it supports integers"),
        (
            "opendp-laplace-sum.json",
            '"make_laplace"',
            '"system"',
            "dpassay does not support OpenDP's measurement 'system'",
        ),
        ("opendp-laplace-sum.json", '"k": null', '"k": 0', "argument 'k' of OpenDP's make_laplace"),
        ("opendp-laplace-sum.json", '"scale": 7.0', '"scale": -7.0', "scale"),
        ("opendp-laplace-sum.json", "symmetric_distance", "change_one_distance", "'change_one_distance'"),
        ("opendp-laplace-sum.json", "MaxDivergence", "RenyiDivergence", "'RenyiDivergence'"),
        ("opendp-geometric.json", "absolute_distance", "l2_distance", "domain 'atom_domain'|needs a metric"),
        ("opendp-response.json", '"prob": 0.75', '"prob": 0.1', "at least 1/3"),
        ("smartnoise.json", "[0.5, 0.0]", "[0.5, 2]", r"steps\[1\]: delta"),
        ("smartnoise.json", "[0.5, 0.0]", "[0.5]", r"steps\[1\] must be two numbers"),
        ("smartnoise.json", '"steps"', '"points"', "is no ledger, claim, or file of a library"),
        ("jax-privacy-bands.json", "0.586989164352417", "0.0", "must not begin with 0"),
        (
            "dpsynth.txt",
            "MechanismType.LAPLACE",
            "MechanismType.OTHER",
            r"dp_operations\[1\]: a mechanism of type 'other'",
        ),
        ("dpsynth.txt", "count=3", "count=0", r"dp_operations\[0\]"),
        ("dpsynth.txt", "name='One", "name=open('x'), nome='One", r"dp_operations\[0\] must have the fields"),
        ("dpsynth.txt", "epsilon=2.0", "epsilon=open('x')", "epsilon must be a number|another type"),
        ("private-evolution-noise.txt", "delta=1e-06", "delta=", "lacks one of its numbers"),
        ("private-evolution-noise.txt", "delta=1e-06", "delta=3", "delta"),
        ("safe-synthesizer-config.json", '"epsilon": 8.0', '"epsilon": -8', "epsilon"),
        ("safe-synthesizer-config.json", "true", '"yes"', "dp_enabled"),
    ],
)
def test_changed_files_are_one_line(tmp_path: Path, name: str, old: str, new: str, message: str) -> None:
    text = (FILES / name).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / name).write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=message) as error:
        read_state(tmp_path / name)
    assert "\n" not in str(error.value)
