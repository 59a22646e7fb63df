"""Everything that `make test` leaves out, step by step: `make verify`.

Each step is one folder of tests (of the largest, one of its subfolders), or a measurement. What a step said is kept in
``build/verify/``; given again for the same files, what passed is not run again. At the end the coverage of lines and
branches is printed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
KEPT = ROOT / "build" / "verify"
PYTEST = [
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-n",
    "2",
    "--dist",
    "worksteal",
    "--hypothesis-profile=random",
    "--cov",
    "--cov-report=",
    "--durations=10",
]
LARGEST = {"accounting"}  # an interrupted step is run again whole, so a folder of half an hour is cut
MEASURE = [sys.executable, "-m", "embedded_model.evaluate"]


def digest() -> str:
    """SHA-256 over every file that git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    results = hashlib.sha256()
    for name in sorted(set(listed.decode().split("\0")) - {""}):
        path = ROOT / name
        if path.is_file():
            results.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return results.hexdigest()


def steps() -> Iterator[tuple[str, list[str], Path]]:
    """Name, command and folder of each step: the tests by the folders that mirror the packages, then a measurement."""
    folders = sorted(path for path in TESTS.iterdir() if path.is_dir() and list(path.rglob("test_*.py")))
    yield "tests", [*PYTEST, *(str(path.relative_to(ROOT)) for path in sorted(TESTS.glob("test_*.py")))], ROOT
    for folder in folders:
        name = folder.relative_to(ROOT)
        if folder.name not in LARGEST:
            yield str(name), [*PYTEST, str(name)], ROOT
            continue
        for inner in sorted(path for path in folder.iterdir() if path.is_dir() and list(path.rglob("test_*.py"))):
            yield f"{name}/{inner.name}", [*PYTEST, str(inner.relative_to(ROOT))], ROOT
        files = sorted(str(path.relative_to(ROOT)) for path in folder.glob("test_*.py"))
        yield str(name), [*PYTEST, *files], ROOT
    yield "embedded model", MEASURE, ROOT / "benchmarks"


def main() -> int:
    here = KEPT / digest()[:16]
    here.mkdir(parents=True, exist_ok=True)
    todo, failed, began = list(steps()), [], time.monotonic()
    for number, (name, command, folder) in enumerate(todo, 1):
        file = here / f"{name.replace('/', '-').replace(' ', '-')}.json"
        if file.is_file():
            said = json.loads(file.read_text())
            print(f"[{number}/{len(todo)}] {name}: passed before, {said['seconds']:.0f} s: {said['last']}", flush=True)
            continue
        print(f"[{number}/{len(todo)}] {name}", flush=True)
        start = time.monotonic()
        environment = {"COVERAGE_FILE": str(here / f".coverage.{file.stem}")}
        if command == MEASURE:
            environment["OMP_NUM_THREADS"] = "2"  # no other worker runs
        code, last = _run(command, folder, environment)
        if code:
            failed.append(name)
        else:
            file.write_text(json.dumps({"seconds": time.monotonic() - start, "last": last}))
    print(f"{len(todo) - len(failed)} of {len(todo)} steps passed in {time.monotonic() - began:.0f} s", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}; the same command runs these again")
        return 1
    return _coverage(here)


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Runs a step with its output shown; the exit code and the last line."""
    last, given = "", {**os.environ, **environment}
    with subprocess.Popen(
        command, cwd=folder, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return process.returncode, last


def _coverage(here: Path) -> int:
    """Prints the coverage of all steps together, by folder and in all."""
    files = [str(path) for path in here.glob(".coverage.*")]
    combined = f"--data-file={here / 'coverage'}"
    subprocess.run([sys.executable, "-m", "coverage", "combine", "--keep", combined, *files], cwd=ROOT, check=True)
    subprocess.run([sys.executable, "-m", "coverage", "report", combined, "--skip-covered"], cwd=ROOT, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
