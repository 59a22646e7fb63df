"""Installs each extra alone in an environment of its own: ``python .ci/try_extras.py WHEEL [--pythons python3.11 …]``.

For every Python that is there, the wheel is installed with one extra and nothing else, `pip check` finds nothing wrong,
and `dpassay --version` and the check of one published claim run. Prints a line for each.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ["python3.11", "python3.12", "python3.13", "python3.14"]
NOT_ALONE = ("test",)  # for contributors


def extras() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return ["", *(name for name in project["optional-dependencies"] if name not in NOT_ALONE)]


def tried(python: str, wheel: Path, extra: str) -> str:
    """``ok``, or the last line of what failed."""
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder, "bin", "python")
        asked = f"dpassay[{extra}] @ {wheel.resolve().as_uri()}" if extra else str(wheel)
        steps = [
            [python, "-m", "venv", folder],
            [str(own), "-m", "pip", "install", "--quiet", asked],
            [str(own), "-m", "pip", "check"],
            [str(own.with_name("dpassay")), "--version"],
            [str(own.with_name("dpassay")), "claims", "000-4"],
        ]
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, cwd=folder)
            if done.returncode:
                lines = (done.stderr or done.stdout).strip().splitlines()
                return f"{' '.join(step[-3:])}: {lines[-1] if lines else done.returncode}"
    return "ok"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--pythons", nargs="+", default=PYTHONS)
    parser.add_argument("--extras", nargs="+", default=extras())
    given = parser.parse_args()
    if not zipfile.is_zipfile(given.wheel):
        sys.exit(f"{given.wheel}: is no wheel; `make dist` makes one")
    failed = 0
    for python in given.pythons:
        if shutil.which(python) is None:
            print(f"{python}: not installed", flush=True)
            continue
        for extra in given.extras:
            said = tried(python, given.wheel, extra)
            failed += said != "ok"
            print(f"{python}, {extra or 'no extra'}: {said}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
