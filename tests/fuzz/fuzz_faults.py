"""Old faults, to be put back."""

from pathlib import Path


def find_all(inputs: Path, top: Path, cases: int) -> int:
    return 0
