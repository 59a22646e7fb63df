"""Parts of a declared procedure that were tuned: what they cost, what is assumed, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import command
import pytest
import yaml
from dp_accounting import dp_event

from dpassay.accounting import account
from dpassay.accounting.tuning.statement import Tuning
from dpassay.generators.declared.claim import DeclaredClaim, DeclaredPart
from dpassay.generators.registry import make_claim

DELTA = 1e-5
LAPLACE = {"class_name": "LaplaceDpEvent", "noise_multiplier": 10.0}


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def body(*parts: dict[str, Any], epsilon: float = 1.0) -> dict[str, Any]:
    return {
        "name": "elsewhere",
        "mechanism": "declared",
        "parameters": {"events": list(parts)},
        "guarantee": {"type": "approx_dp", "epsilon": epsilon, "delta": DELTA},
    }


def event_of(*parts: dict[str, Any]) -> dp_event.DpEvent:
    made = make_claim(body(*parts))
    assert isinstance(made, DeclaredClaim)
    return made.plan().event


def test_a_tuned_part_is_the_best_of_a_random_number_of_runs(tmp_path: Path) -> None:
    """Its verdict, its assumptions and its report; then 40 runs with a fixed number, which cost 40 times as much."""
    random = {"name": "training", "event": LAPLACE, "tuning": {"mean": 10, "distribution": "geometric"}}
    exact = dp_event.RepeatAndSelectDpEvent(dp_event.LaplaceDpEvent(10.0), 10.0, 1.0)
    assert repr(event_of(random)) == repr(exact)
    (tmp_path / "claim.yaml").write_text(yaml.safe_dump(body(random)))
    done = command.run("assay", tmp_path / "claim.yaml", "-o", tmp_path / "out", "-q")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out" / "private" / "assay.json").read_text())
    assert result["verdict"] == "SUPPORTED"
    best = result["best_upper"]
    assert best["value"] == pytest.approx(account(exact, adjacency="add_remove", delta=DELTA).value, rel=1e-12)
    said = " ".join(best["assumptions"])
    assert "training: Tuning: the best of a random number of runs, geometric with mean 10." in said
    assert "Of all runs of a tuning only the best is released" in said
    reports = [file.read_text() for file in (tmp_path / "out").rglob("*.html")]
    assert reports
    assert all("geometric with mean 10" in text for text in reports)
    printed = command.run("account", tmp_path / "claim.yaml")
    assert "only the best is released" in printed.stdout + printed.stderr

    fixed = {"name": "training", "event": LAPLACE, "tuning": {"runs": 40}}
    assert repr(event_of(fixed)) == repr(dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(10.0), 40))
    (tmp_path / "claim.yaml").write_text(yaml.safe_dump(body(fixed)))
    done = command.run("assay", tmp_path / "claim.yaml", "-o", tmp_path / "fixed", "-q")
    assert done.returncode == 4
    best = json.loads((tmp_path / "fixed" / "private" / "assay.json").read_text())["best_upper"]
    assert best["interval"] is None  # most runs may not have been released
    assert "training: Tuning: 40 runs, each of them charged." in " ".join(best["assumptions"])


@pytest.mark.parametrize(
    ("tuning", "shape"),
    [
        ({"mean": 3}, 1.0),
        ({"mean": 3, "distribution": "poisson"}, math.inf),
        ({"mean": 3, "distribution": "logarithmic"}, 0.0),
        ({"mean": 3, "distribution": "truncated_negative_binomial", "shape": 0.5}, 0.5),
    ],
)
def test_the_laws_of_a_number_of_runs(tuning: dict[str, Any], shape: float) -> None:
    run = dp_event.LaplaceDpEvent(10.0)
    assert repr(event_of({"event": LAPLACE, "tuning": tuning})) == repr(
        dp_event.RepeatAndSelectDpEvent(run, 3.0, shape)
    )


@pytest.mark.parametrize(
    ("tuning", "others", "words"),
    [
        ({}, {}, "either how many runs"),
        ({"runs": 3, "mean": 3}, {}, "either how many runs"),
        ({"runs": 3, "distribution": "poisson"}, {}, "of a random number of runs"),
        ({"mean": 0.5}, {}, "mean must be at least 1"),
        ({"mean": 3, "shape": 2}, {}, "shape goes with"),
        ({"mean": 3, "distribution": "truncated_negative_binomial"}, {}, "shape goes with"),
        ({"mean": 3, "distribution": "binomial"}, {}, "distribution"),
        ({"runs": 0}, {}, "runs"),
        ({"runs": True}, {}, "runs"),
        ({"mean": 3}, {"count": 2}, "count"),
    ],
)
def test_bad_statements_are_one_line(
    tuning: dict[str, Any], others: dict[str, Any], words: str, tmp_path: Path
) -> None:
    part = {"event": LAPLACE, "tuning": tuning, **others}
    (tmp_path / "claim.yaml").write_text(yaml.safe_dump(body(part)))
    done = command.run("assay", tmp_path / "claim.yaml", "-o", tmp_path / "out", "-q")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.strip().splitlines()
    assert words in line
    assert not (tmp_path / "out").exists()


def test_a_part_without_tuning_is_described_as_before() -> None:
    assert "tuning" not in DeclaredPart.model_validate({"event": LAPLACE}).model_dump()


def test_dp_sgd_is_compared_and_calibrated_under_tuning() -> None:
    run = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(2.0)), 20)
    options = ["dp-sgd", "--sampling-probability", 0.01, "--steps", 20, "--delta", DELTA]
    for said, tuning in [
        (["--tuning-runs", 4], Tuning(runs=4)),
        (["--tuning-mean", 4, "--tuning-distribution", "poisson"], Tuning(mean=4, distribution="poisson")),
    ]:
        done = command.run("compare", *options, "--noise-multiplier", 2, *said, "--method", "lattice", "--json")
        result = json.loads(done.stdout)
        assert tuning.in_words in result["mechanism"]
        exact = account(tuning.of(run), adjacency="add_remove", delta=DELTA).value
        assert result["rows"][0]["value"] == pytest.approx(exact, rel=1e-3)
    done = command.run("calibrate", *options, "--target-epsilon", 0.5, "--tuning-mean", 4, "--json")
    answer = json.loads(done.stdout)
    step = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(answer["value"]))
    tuned = dp_event.RepeatAndSelectDpEvent(dp_event.SelfComposedDpEvent(step, 20), 4.0, 1.0)
    assert 0.49 < account(tuned, adjacency="add_remove", delta=DELTA).value <= 0.5
    done = command.run("compare", *options, "--noise-multiplier", 2, "--tuning-shape", 4)
    assert done.returncode == 2
    assert "--tuning-" in done.stderr.strip().splitlines()[-1]
