"""The estimated time of a run: measured on made-up data, in a ledger of its own, and longer for longer runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import command
import pytest
import yaml
from small_claims import GENERATORS, written

from dpassay.base.number_format import format_duration
from dpassay.generators import registry
from dpassay.generators.base import RunSettings
from dpassay.generators.measuring import Stopwatch
from dpassay.jobs import choices as job
from dpassay.jobs.choices import MEASURED, calibrate_claim

URL = "http://127.0.0.1:9/v1/completions"
LONGER: dict[str, tuple[str, int]] = {
    "median": ("tokens", 60),
    "mean": ("tokens", 60),
    "dataset_vectors": ("negatives", 60),
    "two_stage": ("steps", 60),
    "aug_pe": ("rounds", 9),
    "table_evolution": ("generations", 10_000),
}
"""A parameter of each small claim, and a value at which a run takes longer."""


def small(folder: Path, generator: str) -> Path:
    """The file of a small claim whose data are gone, and whose texts the embedded model writes."""
    written(folder, generator, URL)
    for name in ("trees.jsonl", "people.csv"):
        (folder / name).unlink(missing_ok=True)
    body = yaml.safe_load((folder / "claim.yaml").read_text())
    body["parameters"].pop("endpoint", None)
    (folder / "claim.yaml").write_text(yaml.safe_dump(body))
    return folder / "claim.yaml"


@pytest.mark.parametrize("generator", LONGER)
def test_longer_runs_take_longer_and_nothing_is_left_behind(
    generator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = small(tmp_path / "claim", generator)
    claim, before = registry.read_claim(path), set(tmp_path.rglob("*"))
    timer: Callable[[Any], float] | None = registry.choices(claim).timer(RunSettings(device="cpu"))
    assert timer is not None
    parameter, longer = LONGER[generator]
    assert 0 < timer(claim) < timer(claim.with_parameters(**{parameter: longer}))
    assert set(tmp_path.rglob("*")) == before


def test_each_choice_has_its_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    claim = registry.read_claim(small(tmp_path / "claim", "aug_pe"))
    result = calibrate_claim(claim, vary={"rounds": [1, 2]}, timed=True, device="cpu")
    assert result.seconds is not None
    assert 0 < result.seconds[0] < result.seconds[1]
    columns, rows = result.table()
    assert columns[-1] == "time"
    assert [row[-1] for row in rows] == [format_duration(item) for item in result.seconds]
    assert [row["seconds"] for row in result.to_json()["choices"]] == list(result.seconds)
    assert MEASURED in result.notes


def test_an_endpoint_is_not_asked(tmp_path: Path) -> None:
    written(tmp_path / "claim", "aug_pe", URL)
    result = calibrate_claim(tmp_path / "claim" / "claim.yaml", vary={"rounds": [1]}, timed=True)
    assert result.seconds is None
    assert result.notes[-1] == job.UNKNOWN


def test_a_model_that_is_missing_leaves_the_rest(tmp_path: Path) -> None:
    path = small(tmp_path / "claim", "aug_pe")
    result = calibrate_claim(path, vary={"rounds": [1]}, timed=True, model=str(tmp_path / "nowhere"))
    assert result.choices
    assert result.seconds is None
    assert result.notes[-1].startswith("No time is estimated: model")


def test_no_time_loads_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("dpassay.mechanisms.models.language_model.LanguageModel.load", refuse)
    path = small(tmp_path / "claim", "aug_pe")
    result = command.run("calibrate", path, "--vary", "rounds=1", "--no-time")
    assert (result.returncode, result.stderr) == (0, "")
    assert "time" not in result.stdout


def test_every_generator_is_timed_needs_its_data_or_is_not_known_before() -> None:
    assert set(GENERATORS) - set(LONGER) == {"secret_evolution", "marginals"}


def test_a_stopwatch_measures_from_one_moment_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([1.0, 3.0, 7.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(moments))
    stopwatch = Stopwatch()
    stopwatch(1, 2)
    assert stopwatch.lap() == 4.0
    assert stopwatch.laps == [2.0, 4.0]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (1e-9, "0.1 ms"),
        (0.25, "250 ms"),
        (0.9996, "1.0 s"),
        (119, "119.0 s"),
        (120, "2.0 min"),
        (7200, "2.0 h"),
        (1e6, "11.6 days"),
    ],
)
def test_durations(seconds: float, said: str) -> None:
    assert format_duration(seconds) == said
