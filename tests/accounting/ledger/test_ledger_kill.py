"""A run killed by SIGKILL at any point resumes, changes nothing that was released, and never counts too little."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import dp_event
from property_settings import number

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ledger import store as ledger_store
from dpassay.accounting.ledger.entries import AlreadyCommitted, Charge, Commit, LedgerRow
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run
from dpassay.accounting.ledger.store import Store

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")

COUNTS = dp_event.DiscreteLaplaceDpEvent(0.1, 1)
STEPS = 40
PLAN = events.compose([(COUNTS, STEPS)])

Hook = Callable[[str, int], None]


class Files:
    """Where a run keeps its ledger and what it releases."""

    def __init__(self, folder: Path, process: str = "") -> None:
        self.ledger = folder / "ledger.sqlite"
        self.release = folder / f"released{process}.txt"

    def released(self) -> list[str]:
        """The values that left the process, in order."""
        return self.release.read_text().splitlines() if self.release.exists() else []


def mechanism(files: Files, hook: Hook = lambda point, step: None) -> None:
    """A two-phase mechanism: charge, sample from the system's entropy, commit, and only then release.

    `hook` is called at each point where it might be killed.
    """
    append, first = Store.append, ledger_store.first_entry

    def watched_first() -> LedgerRow:
        hook("inside open", 0)
        return first()

    def watched_append(store: Store, run: str, kind: str, body: dict[str, Any]) -> None:
        append(store, run, kind, body)
        hook(f"inside {kind}", int(str(body.get("key", "s/0")).partition("/")[2]))

    ledger_store.first_entry = watched_first
    Store.append = watched_append  # type: ignore[assignment, method-assign]  # this is a child process, which ends with it
    with Ledger.open(files.ledger) as ledger:
        hook("open", 0)
        run = ledger.begin("run", plan=PLAN, adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about={"steps": STEPS})
        hook("begun", 0)
        pending: Commit | None = None
        for step in range(run.last_committed("s"), STEPS):
            charge = Charge(key=f"s/{step}", event=COUNTS, stage="s")
            hook("before step", step)
            try:
                run.step(commit=pending, charge=charge)
            except AlreadyCommitted:  # by another process in the same run: its value stands, ours is forgotten
                run.step(charge=charge)
            hook("charged", step)
            release(files, run)
            hook("released", step)
            pending = Commit(key=charge.key, value=os.urandom(8).hex())
            hook("sampled", step)
        if pending is not None:
            with contextlib.suppress(AlreadyCommitted):
                run.step(commit=pending)
        hook("all committed", 0)
        release(files, run)
        hook("all released", 0)
        run.finish()
        hook("finished", 0)


def release(files: Files, run: Run) -> None:
    """Appends every committed value that is not out yet; a line is one write, so a kill leaves it whole or out."""
    out = len(files.released())
    with files.release.open("ab", buffering=0) as file:
        for step in range(out, run.last_committed("s")):
            outcome = run.outcome(f"s/{step}")
            assert outcome is not None
            file.write(f"{outcome.value}\n".encode())


class Watch:
    """What must hold after every kill, and from one kill to the next."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.head: str | None = None
        self.committed: list[str] = []
        self.was_released: list[str] = []
        self.kills = 0

    def check(self) -> None:
        released = self.files.released()
        assert released[: len(self.was_released)] == self.was_released, "a released value changed"
        self.was_released = released
        if not self.files.ledger.exists():  # killed while it was made: nothing was charged, so nothing may be out
            assert self.head is None
            assert not released
            return
        ledger = Ledger.open(self.files.ledger, read_only=True)
        with ledger:
            self.head = ledger.verify(expected_head=self.head)  # what was there before is there still
            charged = sum(event.count for event in ledger.events())
            committed = self._committed(ledger)
        assert committed[: len(self.committed)] == self.committed, "a committed value changed"
        assert released == committed[: len(released)], "a value is out that was not committed"
        assert charged >= len(committed) >= len(released), "the ledger counts too little"
        assert charged <= min(len(committed) + 1, STEPS), "a step was charged twice"
        self.committed = committed

    def finish(self) -> None:
        """The run goes on to its end, and a further time changes nothing."""
        for _ in range(2):
            assert in_child(mechanism, self.files) == 0
            self.check()
            with Ledger.open(self.files.ledger, read_only=True) as ledger:
                assert ledger.event() == PLAN
                assert ledger.run("run").finished
                assert ledger.entries == 3 + 2 * STEPS
            assert len(self.committed) == len(self.was_released) == len(set(self.committed)) == STEPS

    @staticmethod
    def _committed(ledger: Ledger) -> list[str]:
        if not ledger.runs():
            return []
        run = ledger.run("run")
        outcomes = [run.outcome(f"s/{step}") for step in range(run.last_committed("s"))]
        assert all(run.outcome(f"s/{step}") is None for step in range(len(outcomes), STEPS))
        return [outcome.value for outcome in outcomes if outcome is not None]


def start(work: Callable[..., None], *arguments: Any) -> Any:
    child = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    child.start()
    return child


def in_child(work: Callable[..., None], *arguments: Any) -> int:
    """The exit code of `work` in a process of its own."""
    child = start(work, *arguments)
    child.join(120)
    assert child.exitcode is not None
    return int(child.exitcode)


def killed_at(point: str, step: int) -> Hook:
    def hook(now: str, index: int) -> None:
        if (now, index) == (point, step):
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


POINTS = [
    ("inside open", 0),
    ("open", 0),
    ("inside begin", 0),
    ("begun", 0),
    ("before step", 0),
    ("inside charge", 0),
    ("charged", 0),
    ("sampled", 0),
    ("inside commit", 0),
    ("inside charge", 1),
    ("charged", 1),
    ("released", 1),
    ("sampled", 7),
    ("inside commit", 7),
    ("inside charge", 8),
    ("charged", 8),
    ("released", 8),
    ("inside commit", STEPS - 1),
    ("all committed", 0),
    ("all released", 0),
    ("inside finish", 0),
    ("finished", 0),
]


@pytest.mark.grid("point")
@pytest.mark.parametrize(("point", "step"), POINTS)
def test_killed_at_a_point(tmp_path: Path, point: str, step: int) -> None:
    watch = Watch(Files(tmp_path))
    assert in_child(mechanism, watch.files, killed_at(point, step)) == -signal.SIGKILL
    watch.check()
    watch.finish()


@pytest.mark.slow
def test_killed_at_one_point_after_the_other(tmp_path: Path) -> None:
    """The same run is killed at every point, each time resumed from where the kill before left it."""
    watch = Watch(Files(tmp_path))
    for point, step in POINTS:
        assert in_child(mechanism, watch.files, killed_at(point, step)) == -signal.SIGKILL, (point, step)
        watch.check()
    watch.finish()


def kill_at_random(folder: Path, kills: int, seed: int) -> dict[int, int]:
    """Kills runs after random delays until `kills` of them were in progress, checking after each.

    Returns:
        The number of kills by the number of steps that were committed when they came.
    """
    generator = random.Random(seed)  # a public choice: when to kill
    started = time.perf_counter()
    (folder / "timing").mkdir()
    assert in_child(mechanism, Files(folder / "timing")) == 0
    whole = time.perf_counter() - started
    results: dict[int, int] = {}
    for index in range(10 * kills):
        watch = Watch(Files(folder / str(index)))
        watch.files.ledger.parent.mkdir()
        # A kill spends a third of a run on average, so that most runs are killed more than once.
        for _ in range(4):
            child = start(mechanism, watch.files)
            time.sleep(generator.uniform(0, 2 / 3 * whole))
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            assert child.exitcode in (0, -signal.SIGKILL)
            watch.check()
            if child.exitcode == 0:
                break  # it was finished already: no kill
            results[len(watch.committed)] = results.get(len(watch.committed), 0) + 1
        watch.finish()
        if sum(results.values()) >= kills:
            return results
    raise AssertionError(f"only {sum(results.values())} kills hit a run in progress")


@pytest.mark.slow
def test_killed_at_random(tmp_path: Path) -> None:
    wanted = number(8, 100)
    results = kill_at_random(tmp_path, kills=wanted, seed=2)
    kills, between = sum(results.values()), sum(count for steps, count in results.items() if 0 < steps < STEPS)
    print(f"\n{kills} kills at {len(results)} different numbers of committed steps; {between} in the middle of a run")
    assert kills >= wanted
    assert between >= number(0, 50)


def kill_one_of_two(folder: Path, delay: float) -> None:
    folder.mkdir()
    watches = [Watch(Files(folder, name)) for name in ("-a", "-b")]
    first, second = (start(mechanism, watch.files) for watch in watches)
    time.sleep(delay)
    os.kill(first.pid, signal.SIGKILL)
    second.join(120)
    assert second.exitcode == 0
    for watch in watches:
        watch.check()
        watch.finish()
    assert watches[0].was_released == watches[1].was_released


def test_one_of_two_writers_is_killed(tmp_path: Path) -> None:
    """Two processes in the same run; the one that is killed stops neither the other nor the count."""
    generator = random.Random(3)
    for index, delay in enumerate([0.01, 0.04, 0.08, *(generator.uniform(0, 0.2) for _ in range(number(0, 50)))]):
        kill_one_of_two(tmp_path / str(index), delay)
