"""Full disks and other processes in the middle of a run: one line, exit code 2, and the same command finishes it.

A disk is full in one of two ways: no file grows beyond a size, which the operating system enforces (RLIMIT_FSIZE), or a
call that writes, waits for the disk, or gives a name fails with ENOSPC, and a COMMIT with SQLite's own error.
`Visible.check` holds after every fault: what is visible was committed, and at the end what was charged is what was
planned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from killed_life import COMMANDS, Ended, Lives, Point
from small_claims import GENERATORS, written
from text_server import TextServer, text_server
from visible import Visible

ANYWHERE = r": (write|rename|replace|link|mkdir|COMMIT|os\.(write|fsync) \d*[05]) (?!.*after$)"
FEW = (
    r"COMMIT (finish|verdict|release) .* before|mkdir run before|os.(fsync|write) 2 "
    r"|replace run/private/(synthetic.jsonl|assay.json) before|write run/private/report.html\S* half|rename out before"
)
REASONS = "|".join(
    [
        "no space left on device; correct this and run the same command again",
        "no space left on device",
        "file too large; correct this and run the same command again",
        "file too large",
        "the disk is full; what was committed is kept, make room and start again",
        "the ledger cannot be read or written: (disk i/o error|disk I/O error|database or disk is full)",
        "the ledger cannot be written or opened here; check the rights of the file and its folder",
    ]
)
BUSY = "dpassay: another process is working in run; wait for it, or name another folder\n"
RELEASED = "dpassay: out: exists and is not empty; name a new folder with -o\n"
"""What a release is told that begins when another one has ended."""


@pytest.fixture(scope="module")
def server() -> Iterator[TextServer]:
    with text_server() as server:
        yield server


@pytest.fixture(scope="module")
def lives(server: TextServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    """Warm for Aug-PE."""
    with Lives() as lives:
        warm(lives, tmp_path_factory.mktemp("warm"), "aug_pe", server.url)
        yield lives


def one_line(ended: Ended) -> None:
    """The command said in one line which file could not be written, and why."""
    assert ended.code == 2, f"{ended.code} after {ended.last}: {ended.errors}"
    assert re.fullmatch(rf"dpassay: (audits: )?[^:\n]*\b(run|out)\b[^:\n]*: ({REASONS})\n", ended.errors), (
        f"{ended.last}: {ended.errors}"
    )


def full_everywhere(lives: Lives, seen: Visible, where: str) -> list[Point]:
    """One life, resumed each time, in which every call that a pattern fits is once the first that fails: a full disk.

    Returns:
        Where the disk was full first.
    """
    points: list[Point] = []
    while (ended := lives.live(seen.folder, deadly=where, spared=points, full=True)).code:
        one_line(ended)
        assert ended.last is not None
        points.append(ended.last)
        seen.check()
    seen.check_end()
    return points


def full_at_sizes(lives: Lives, seen: Visible, sizes: Sequence[int]) -> int:
    """One life on disks that are larger each time, and then on one that is large enough.

    Returns:
        The number of disks that were too small.
    """
    full = 0
    for size in sizes:
        ended = lives.live(seen.folder, size=size)
        if ended.code:
            one_line(ended)
            full += 1
        seen.check()
    assert lives.live(seen.folder).code == 0
    seen.check_end()
    return full


SIZES = [0, 100, 5_000, 30_000, *range(34_000, 100_000, 6_000)]
"""In bytes. SQLite's index of its log takes 32 KiB, so that most are above that."""


def warm(lives: Lives, folder: Path, generator: str, url: str) -> None:
    assert lives.live(written(folder / "warm", generator, url).folder, warm=True).code == 0


@pytest.mark.slow
def test_a_full_disk_is_one_line_until_there_is_room(lives: Lives, server: TextServer, tmp_path: Path) -> None:
    points = full_everywhere(lives, written(tmp_path / "points", "aug_pe", server.url), FEW)
    small = full_at_sizes(lives, written(tmp_path / "sizes", "aug_pe", server.url), SIZES[::2])
    assert len(points) >= 8
    assert small >= 3


def raced(lives: Lives, seen: Visible, command: str, processes: int = 3) -> int:
    """Starts one command in several processes at once; the number that were told to wait."""
    ended = lives.race(seen.folder, processes, command)
    assert any(item.code == 0 for item in ended), [item.errors for item in ended]
    told = (BUSY, RELEASED) if command == "release" else (BUSY,)
    assert all(item.code == 0 or (item.code == 2 and item.errors in told) for item in ended), [
        (item.code, item.errors) for item in ended
    ]
    seen.check()
    return sum(item.code == 2 for item in ended)


def test_of_processes_in_one_folder_one_works(lives: Lives, server: TextServer, tmp_path: Path) -> None:
    seen = written(tmp_path / "race", "aug_pe", server.url)
    told = [raced(lives, seen, command) for command in ("generate", "assay", "release")]
    assert lives.live(seen.folder).code == 0
    seen.check_end()
    assert told[0] == 2


def generator_on_full_disks(generator: str, folder: Path, url: str) -> tuple[int, int]:
    """The number of calls that failed, and of disks that were too small."""
    with Lives() as lives:
        warm(lives, folder, generator, url)
        points = full_everywhere(lives, written(folder / "points", generator, url), ANYWHERE)
        small = full_at_sizes(lives, written(folder / "sizes", generator, url), SIZES)
        for size in SIZES[4::4]:
            small += full_at_sizes(lives, written(folder / f"size-{size}", generator, url), [size])
    return len(points), small


@pytest.mark.slow
def test_every_generator_on_full_disks(server: TextServer, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        counts = pool.map(lambda name: generator_on_full_disks(name, tmp_path / name, server.url), GENERATORS)
        results = dict(zip(GENERATORS, counts, strict=True))
    for name, (points, small) in results.items():
        print(f"\n{name}: {points} calls failed on a full disk, and {small} disks were too small", end="")
    print(f"\n{sum(map(sum, results.values()))} full disks")
    assert all(points >= 15 and small >= 6 for points, small in results.values())


@pytest.mark.slow
def test_races_of_three_processes(server: TextServer, tmp_path: Path) -> None:
    races, told = 0, 0
    with Lives() as lives:
        for generator in GENERATORS:
            warm(lives, tmp_path / generator, generator, server.url)
            for number in range(5):
                seen = written(tmp_path / generator / str(number), generator, server.url)
                for command in COMMANDS:
                    told += raced(lives, seen, command)
                    races += 1
                assert lives.live(seen.folder).code == 0
                seen.check_end()
    print(f"\n{races} races of three processes, in which {told} were told to wait")
    assert races >= 50
