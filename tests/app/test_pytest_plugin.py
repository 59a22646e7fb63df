"""The fixture `privacy_audit`, in a pytest of its own, as users have it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import dpassay.testing  # noqa: F401  (or the pytest inside would load NumPy and SciPy, which load once only)

pytest_plugins = ["pytester"]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own-mechanism"


def test_the_example_finds_its_bug(pytester: pytest.Pytester) -> None:
    shutil.copytree(EXAMPLE, pytester.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1, failed=1)
    out = result.stdout.str()
    assert "FAILED test_noisy_mean.py::test_the_first_mean_does_not" in out
    assert "first_noisy_mean leaks more than it claims, pure differential privacy with ε = 1 (replace_one, unit" in out
    assert "one record exchanged (for a sum or a mean, twice as much as one record more or less)" in out
    assert "test_noisy_mean.py::test_the_mended_mean_keeps_its_claim: noisy_mean was shown to have ε ≥ 0." in out
    assert "up to 5.56098 could have been; the claim allows 1" in out
    assert "def assert_never_exceeds" not in out  # the message, and not our code around it
    assert not list(pytester.path.rglob("repetitions.jsonl"))


def test_an_interrupted_audit_goes_on_if_asked(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pathlib
        from dpassay.accounting import PureDP

        RUNS = pathlib.Path(__file__).parent / "runs"

        def count(data, source):
            with RUNS.open("a") as file:
                file.write("x")
            if RUNS.stat().st_size == 151:
                raise OSError("the power is gone")
            return len(data) + int(source.discrete_laplace(1, 1.0)[0])

        def test_count(privacy_audit):
            privacy_audit(count, PureDP(1.0), data=[1], neighbor=[1, 2], runs=200)
        """
    )
    pytester.runpytest_inprocess("--dpassay-resume").assert_outcomes(failed=1)
    (kept,) = pytester.path.rglob("repetitions.jsonl")
    assert kept.read_text().count("\n") == 1 + 75  # two runs a line
    pytester.runpytest_inprocess("--dpassay-resume").assert_outcomes(passed=1)
    assert (pytester.path / "runs").stat().st_size == 400 + 1
    assert not list(pytester.path.rglob("repetitions.jsonl"))


def test_the_plugin_is_declared_and_loads_nothing() -> None:
    (outcome,) = (entry for entry in entry_points(group="pytest11") if entry.name == "dpassay")
    assert outcome.value == "dpassay.pytest_plugin"
    code = (
        "import pytest, sys; before = set(sys.modules); import dpassay.pytest_plugin\n"
        "print(*sorted(name for name in set(sys.modules) - before if name.split('.')[0] != 'dpassay'))\n"
        "print(*sorted(name for name in sys.modules if name.split('.')[0] == 'dpassay'))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    others, own = result.stdout.splitlines()
    assert not {name.split(".")[0] for name in others.split()} & {"numpy", "scipy", "torch", "pydantic", "transformers"}
    assert own == "dpassay dpassay.pytest_plugin"
