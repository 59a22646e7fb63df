"""What `dpassay calibrate` prints is accepted as printed: by the gate, by `account` and by the verdict on a claim."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import run

from dpassay.jobs.mechanisms import softmax_range

DELTA = 1e-6


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def printed(command: str, *arguments: object) -> float:
    """The value in the first line of the answer."""
    done = run("calibrate", command, "--delta", DELTA, *arguments)
    assert done.returncode == 0, done.stderr
    result = re.match(r"[a-z ]+ ([0-9.]+):", done.stdout)
    assert result is not None, done.stdout
    return float(result.group(1))


def claim(folder: Path, part: dict[str, Any], epsilon: float) -> Path:
    body = {
        "name": "calibrated",
        "mechanism": "declared",
        "adjacency": "add_remove",
        "parameters": {"events": [{"name": "all of it", **part}]},
        "guarantee": {"type": "approx_dp", "epsilon": epsilon, "delta": DELTA},
    }
    (folder / "claim.yaml").write_text(yaml.safe_dump(body))
    return folder / "claim.yaml"


def accepted(path: Path, epsilon: float) -> None:
    gated = run("gate", path, "--max-epsilon", epsilon, "--delta", DELTA)
    assert gated.returncode == 0, gated.stdout
    body = json.loads(run("account", path, "--json").stdout)
    least = min(bound["value"] for bound in body["bounds"] if bound["rigor"] == "certified" and bound["delta"])
    assert least <= epsilon
    done = run("assay", path, "-o", path.parent / "out", "-q")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.grid
@pytest.mark.parametrize(
    ("epsilon", "rate", "steps", "tolerance"),
    [(0.5, 0.001, 100_000, 1e-3), (3.0, 0.01, 1000, 1e-3), (1.0, 0.02, 500, 1e-5), (8.0, 0.1, 50, 1e-7)],
)
def test_noise_of_dp_sgd(tmp_path: Path, epsilon: float, rate: float, steps: int, tolerance: float) -> None:
    """The first, 2.64917, was "NOT within", at .500045, and UNPROVEN."""
    given = ("--sampling-probability", rate, "--steps", steps, "--tolerance", tolerance)
    noise = printed("dp-sgd", "--target-epsilon", epsilon, *given)
    sgd = {"noise_multiplier": noise, "sample_rate": rate, "steps": steps}
    stated = {"normalizer": "public", "conditions": ["clipping", "noise", "once"]}
    accepted(claim(tmp_path, {"dp_sgd": sgd, "sampler": "poisson", **stated}, epsilon), epsilon)


def test_noise_of_gaussians(tmp_path: Path) -> None:
    noise = printed("gaussian", "--target-epsilon", 1, "--count", 7)
    event = {"class_name": "GaussianDpEvent", "noise_multiplier": noise}
    accepted(claim(tmp_path, {"event": event, "count": 7, "conditions": ["event"]}, 1.0), 1.0)


@pytest.mark.slow
def test_clip_of_selections(tmp_path: Path) -> None:
    given = ("--temperature", 1.5, "--batch-size", 64, "--count", 128)
    clip = printed("selection", "--target-epsilon", 3, *given)
    event = {"class_name": "BoundedRangeSelectionDpEvent", "eta": softmax_range(clip, 1.5, 64, "add_remove")}
    accepted(claim(tmp_path, {"event": event, "count": 128, "conditions": ["event"]}, 3.0), 3.0)


@pytest.mark.slow
def test_a_limit_outside_the_interval_is_still_refused(tmp_path: Path) -> None:
    """ε is .4998 here; a finer width changes no answer that is not a matter of width."""
    sgd = {"noise_multiplier": 2.64917, "sample_rate": 0.001, "steps": 100_000}
    path = claim(tmp_path, {"dp_sgd": sgd, "sampler": "poisson"}, 0.4997)
    assert run("gate", path, "--max-epsilon", 0.4997, "--delta", DELTA).returncode == 1
    assert run("assay", path, "-o", tmp_path / "out", "-q").returncode == 4
