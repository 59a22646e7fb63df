"""Every known fault still applies, and is killed by the tests that are named for it."""

import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).with_name("mutants.py")


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_mutant_applies_and_its_tests_exist() -> None:
    mutants = _loaded()
    always = runpy.run_path(str(SCRIPT.with_name("conftest.py")))["cases_of_known_faults"]()
    names = [mutant.name for mutant in mutants.MUTANTS]
    assert len(set(names)) == len(names)
    for mutant in mutants.MUTANTS:
        mutants.mutated(mutant, (mutants.ROOT / mutant.file).read_text())
        assert mutant.tests
        for test in mutant.tests:
            path, _, function = test.partition("::")
            assert f"def {function.partition('[')[0]}" in (mutants.ROOT / path).read_text(), test
            assert "[" not in test or f"{Path(path).name}::{function}" in always, (
                f"{test}: `make test` may leave it out"
            )


def test_a_mutant_whose_text_is_gone_is_refused() -> None:
    mutants = _loaded()
    mutant = mutants.Mutant("any", "any.py", "a", "b", ())
    with pytest.raises(ValueError, match="0 times"):
        mutants.mutated(mutant, "c")
    with pytest.raises(ValueError, match="2 times"):
        mutants.mutated(mutant, "a a")


@pytest.mark.slow
def test_every_mutant_is_killed() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
