"""Where standard output or error is closed or full, the exit code is that of the result, or 2, but never 1 for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CLAIM = """name: declared
mechanism: declared
adjacency: add_remove
parameters: {events: [{name: sum, event: {class_name: GaussianDpEvent, noise_multiplier: 1.0}}]}
guarantee: {type: approx_dp, epsilon: 9.0, delta: 1.0e-5}
"""
LIMIT = "gate event.txt --delta 1e-5 --adjacency add_remove --unit record --condition event --max-epsilon"
FULL = "/dev/full"

pytestmark = pytest.mark.skipif(not Path(FULL).exists(), reason="no device that is always full")


@pytest.mark.grid
@pytest.mark.parametrize(
    ("command", "streams", "code"),
    [
        ("nonsense", "2>&-", 2),
        ("nonsense", "2>/dev/full", 2),
        ("nonsense", ">&- 2>&- <&-", 2),
        ("gate event.txt --max-epsilon x", ">/dev/full 2>/dev/full", 2),
        (f"{LIMIT} 100", "2>&-", 0),
        (f"{LIMIT} 100", ">&- 2>&- <&-", 0),
        (f"{LIMIT} 100", ">/dev/full 2>&-", 2),
        (f"{LIMIT} .1", ">&- 2>/dev/full", 1),
        ("gate --help", ">/dev/full 2>&-", 2),
        ("assay claim.yaml -o out", "2>&-", 0),
        ("assay claim.yaml -o out", ">&- 2>/dev/full", 2),
    ],
)
def test_the_exit_code_is_that_of_the_result(command: str, streams: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "event.txt").write_text("GaussianDpEvent(noise_multiplier=1.0)")
    (tmp_path / "claim.yaml").write_text(CLAIM)
    line = f'exec "{sys.executable}" -m dpassay {command} {streams}'
    assert subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True).returncode == code


def test_nothing_is_printed_into_a_file_that_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """With descriptor 2 free, the first file that is opened gets it."""
    line = f'exec "{sys.executable}" -m dpassay nonsense >out 2>&-'
    assert subprocess.run(["bash", "-c", line], cwd=tmp_path).returncode == 2
    assert (tmp_path / "out").read_text() == ""
