"""The fuzzer passes, and finds old faults that are put back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")


def fuzz(*options: str) -> str:
    """What the fuzzer prints, in a process of its own: it forks, which threads of other tests do not survive."""
    done = subprocess.run(
        [sys.executable, RUN, *options], capture_output=True, text=True, cwd=RUN.parent, env=os.environ, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-2000:]}"
    return done.stdout


def test_twelve_cases_have_no_fault() -> None:
    assert "cases with a fault: 0" in fuzz("--cases", "12")


@pytest.mark.slow
def test_a_case_is_made_again_by_its_number() -> None:
    assert "case 48: no fault" in fuzz("--case", "48")


@pytest.mark.slow
def test_old_faults_are_found() -> None:
    printed = fuzz("--faults", "--cases", "250")
    assert "NOT FOUND" not in printed
    assert printed.count(" cases run)") >= 10


@pytest.mark.slow
@pytest.mark.parametrize("first", [12, 1256])
def test_two_thousand_more_cases_have_no_fault(first: int) -> None:
    """In two processes."""
    assert "cases with a fault: 0" in fuzz("--first", str(first), "--cases", "1244")
