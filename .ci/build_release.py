"""Builds what is published, and checks it: ``python .ci/build_release.py [--out dist]``, or ``make dist``.

The archive of the source and the wheel hold the commit from which they were made. Everything is built twice, and both
times must give the same bytes: times are those of the commit, and names are in order. `twine` and
`check-wheel-contents` then look at them.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMIT = Path("app", "commit.txt")
"""Where the commit is written, in the folder of the package `dpassay`."""


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def source_of(commit: str, folder: Path) -> None:
    """Writes the files of a commit, and its name among them."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    (folder / COMMIT).write_text(commit + "\n", encoding="ascii")


def same_times(archive: Path, seconds: int) -> None:
    """Writes an archive of the source anew: names in order, one time, one owner."""
    made = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as new:
        for item in sorted(old.getmembers(), key=lambda member: member.name):
            content = old.extractfile(item) if item.isfile() else None
            item.mtime, item.uid, item.gid, item.uname, item.gname, item.pax_headers = seconds, 0, 0, "", "", {}
            item.mode = 0o755 if item.isdir() or item.mode & 0o100 else 0o644
            new.addfile(item, content)
    archive.write_bytes(gzip.compress(made.getvalue(), mtime=seconds))


def built(commit: str, out: Path) -> None:
    """Builds both archives of a commit into a folder."""
    seconds = int(git("log", "-1", "--format=%ct", commit))
    with tempfile.TemporaryDirectory() as folder:
        source_of(commit, Path(folder))
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(seconds)}
        command = [sys.executable, "-m", "build", "--outdir", str(out), folder]
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    for archive in out.glob("*.tar.gz"):
        same_times(archive, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    if git("status", "--porcelain"):
        sys.exit("there are changes that no commit holds; commit them first")
    commit = git("rev-parse", "HEAD")
    shutil.rmtree(given.out, ignore_errors=True)
    built(commit, given.out)
    made = sorted(given.out.iterdir())
    with tempfile.TemporaryDirectory() as folder:
        built(commit, Path(folder))
        if different := [file.name for file in made if file.read_bytes() != Path(folder, file.name).read_bytes()]:
            sys.exit(f"built twice, these differ: {', '.join(different)}")
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, made)], check=True)
    wheels = [str(file) for file in made if file.suffix == ".whl"]
    subprocess.run([str(Path(sys.executable).with_name("check-wheel-contents")), *wheels], check=True)
    print(f"{', '.join(file.name for file in made)}: twice the same bytes, from commit {commit}")


if __name__ == "__main__":
    main()
