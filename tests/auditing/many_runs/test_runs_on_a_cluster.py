"""Audits by many runs on the workers of a real scheduler find what this machine finds, whoever is killed."""

from __future__ import annotations

import functools
import hashlib
import json
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import command
import pytest
import toy_generator
from dask_processes import TTL, Dask, dask

from dpassay.auditing.many_runs.cluster import _check, made_in
from dpassay.auditing.many_runs.commands import files_of
from dpassay.audits.games import many_runs_power
from dpassay.mechanisms.compute.workers import WorkerError

TOY = toy_generator.__file__
PYTHON = f"{shlex.quote(sys.executable)} -I -S {shlex.quote(TOY)} {{input}} {{output}} --seed {{seed}}"
PEOPLE = "age,city\n" + "".join(f"{20 + 7 * place % 40},{('north', 'south')[place % 2]}\n" for place in range(30))


@pytest.fixture(autouse=True)
def fewer_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_runs_power, "REPETITIONS", 20)


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dask]:
    with dask(tmp_path_factory.mktemp("cluster") / "dask", 2) as cluster:
        yield cluster


def plan(folder: Path, runs: int) -> Path:
    (folder / "people.csv").write_text(PEOPLE)
    audit = folder / "audit"
    options = ("--epsilon", "1", "--runs", runs, "--neighbors", "new_category", "--neighbors", "ordinary")
    command.written("audit", "runs", "plan", "--like", folder / "people.csv", "-o", audit, *options)
    return audit


def twice(folder: Path, runs: int) -> tuple[Path, Path]:
    """A plan and a copy, whose runs have the same seeds."""
    here, there = plan(folder, runs), folder / "there"
    shutil.copytree(here, there)
    return here, there


def run(audit: Path, *options: object) -> dict[str, Any]:
    made: dict[str, Any] = command.written("audit", "runs", "run", audit, "--all", *options)
    return made


def recorded(audit: Path) -> dict[tuple[Any, ...], Any]:
    """The features of each run; fails if one was recorded twice."""
    rows = [json.loads(line) for line in (audit / "private" / "results.jsonl").read_text().splitlines()]
    runs = [row for row in rows if "phase" in row]
    results = {(row["arm"], row["phase"], row["data"], row["number"]): row["features"] for row in runs}
    assert len(results) == len(runs)
    return results


def background(audit: Path, *options: object) -> subprocess.Popen[bytes]:
    """The same in a process of its own."""
    words = [sys.executable, "-m", "dpassay", "audit", "runs", "run", audit, "--all", "-q", *options]
    return subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def has_lines(path: Path, more_than: int) -> bool:
    return path.exists() and len(path.read_text().splitlines()) > more_than


def wait_for(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def test_runs_are_those_of_this_machine(tmp_path: Path, two_workers: Dask) -> None:
    here, there = twice(tmp_path, 30)
    generator = ("--command", f"{PYTHON} --do noisy")
    first, second = run(here, *generator), run(there, *generator, "--cluster", two_workers.address)
    assert first["runs"] == second["runs"] == 30
    assert recorded(here) == recorded(there)
    bounds = [command.written("audit", "runs", "bound", audit)["audit"] for audit in (here, there)]
    assert bounds[0] == bounds[1]


def test_a_run_that_fails_is_counted_and_not_made_again(tmp_path: Path, two_workers: Dask) -> None:
    audit = plan(tmp_path, 20)
    log = tmp_path / "log"
    run(audit, "--command", f"{PYTHON} --do crowded --most 30 --log {log}", "--cluster", two_workers.address)
    features = recorded(audit)
    assert {of[""]["failed"] for of in features.values()} == {0.0, 1.0}
    assert len(log.read_text().splitlines()) == len(features) + 1 + 2, "a trial run, and one on each worker"


def test_runs_of_a_killed_worker_are_made_by_another(tmp_path: Path) -> None:
    kill(tmp_path, 3, 60)


@pytest.mark.slow
def test_fifty_killed_workers_lose_and_double_no_run(tmp_path: Path) -> None:
    kill(tmp_path, 50, 400)


def kill(folder: Path, kills: int, runs: int) -> None:
    """Kills workers while an audit runs; another one starts for each."""
    here, there = twice(folder, runs)
    generator = ("--command", f"{PYTHON} --do slow --seconds 0.1")
    with dask(folder / "dask", 2) as cluster:
        done = threading.Event()
        killed = 0

        def killer() -> None:
            nonlocal killed
            wait_for(lambda: (there / "private" / "results.jsonl").exists(), 120)
            while killed < kills and not done.is_set():
                cluster.add_worker()
                cluster.wait_for_workers(2)
                time.sleep(0.3)
                cluster.kill_worker()
                killed += 1

        thread = threading.Thread(target=killer)
        thread.start()
        try:
            process = background(there, *generator, "--cluster", cluster.address)
            _, errors = process.communicate(timeout=600)
        finally:
            done.set()
            thread.join()
    assert process.returncode == 0, errors
    assert killed == kills, "the audit ended too soon"
    run(here, *generator)
    assert recorded(here) == recorded(there)


def test_a_killed_coordinator_resumes_on_other_workers(tmp_path: Path) -> None:
    here, there = twice(tmp_path, 40)
    generator = ("--command", f"{PYTHON} --do slow --seconds 0.1")
    results = there / "private" / "results.jsonl"
    for number, workers in enumerate((1, 2, 1)):
        with dask(tmp_path / f"dask {number}", workers) as cluster:
            process = background(there, *generator, "--cluster", cluster.address)
            many = 5 * (number + 1)
            wait_for(functools.partial(has_lines, results, many))
            process.kill()
            process.communicate()
    run(there, *generator)
    run(here, *generator)
    assert recorded(here) == recorded(there)


def test_a_killed_scheduler_counts_nothing_and_another_one_goes_on(tmp_path: Path) -> None:
    """Runs under way are no failures of the generator."""
    here, there = twice(tmp_path, 40)
    generator = ("--command", f"{PYTHON} --do slow --seconds 0.3")
    with dask(tmp_path / "dask", 2) as cluster:
        process = background(there, *generator, "--cluster", cluster.address)
        wait_for(functools.partial(has_lines, there / "private" / "results.jsonl", 5))
        cluster.kill_scheduler()
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "the scheduler of the cluster is gone while work was under way; no result was counted" in errors.decode()
    with dask(tmp_path / "another", 1) as cluster:
        run(there, *generator, "--cluster", cluster.address)
    run(here, *generator)
    assert recorded(here) == recorded(there)


@pytest.mark.slow
def test_a_worker_that_is_silent_for_long_and_comes_back_doubles_no_run(tmp_path: Path) -> None:
    """As where the network is cut: its run is made by another worker, and what it returns later is not wanted."""
    here, there = twice(tmp_path, 100)
    generator = ("--command", f"{PYTHON} --do slow --seconds 0.3")
    with dask(tmp_path / "dask", 2) as cluster:
        process = background(there, *generator, "--cluster", cluster.address)
        wait_for(lambda: (there / "private" / "results.jsonl").exists(), 120)
        for _ in range(2):
            cluster.pause_worker(3 * TTL)
            time.sleep(1)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    run(here, *generator)
    assert recorded(here) == recorded(there)


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_ends_the_commands_of_the_workers(tmp_path: Path, two_workers: Dask) -> None:
    audit, log = plan(tmp_path, 20), tmp_path / "log"
    generator = f"{PYTHON} --do child --seconds 0 --most 5 --log {log} --go {tmp_path / 'go'}"
    process = background(audit, "--command", generator, "--cluster", two_workers.address)
    wait_for(lambda: log.exists() and len(log.read_text().splitlines()) >= 6)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    pids = [pid for line in log.read_text().splitlines() for pid in json.loads(line)["pids"]]
    wait_for(lambda: not any(Path("/proc", str(pid)).exists() for pid in pids), 20)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--function", "math:sqrt"], "a function runs on this machine only; give --cluster a --command"),
        (["--command", f"{PYTHON}", "--workers", "2"], "--workers is of this machine, and a cluster has workers of"),
        (["--command", f"{PYTHON}"], "cluster tcp://127.0.0.1:9: no scheduler answers ("),
    ],
)
def test_what_cannot_run_is_one_line(tmp_path: Path, options: list[str], says: str) -> None:
    result = command.run("audit", "runs", "run", plan(tmp_path, 20), *options, "--cluster", "tcp://127.0.0.1:9", "-q")
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert says in result.stderr


def test_a_cluster_without_workers_is_refused(tmp_path: Path) -> None:
    with dask(tmp_path / "dask", 0) as cluster:
        result = command.run(
            "audit", "runs", "run", plan(tmp_path, 20), "--command", PYTHON, "--cluster", cluster.address
        )
    assert result.returncode == 2
    assert f"has no workers; start some with `dask worker {cluster.address}`" in result.stderr


def test_a_worker_without_the_generator_says_so(tmp_path: Path) -> None:
    """Its failures would be taken for those of the generator."""
    script = tmp_path / "gen.py"
    script.write_text("pass\n")
    words = ["cp", str(script), f"--config={script}", "{input}"]
    files = files_of(words)
    assert files == {str(script): hashlib.sha256(b"pass\n").hexdigest()}
    assert files_of([str(script), "{input}"]) == files, "a program may be the generator itself"
    _check(words, files)
    for given, held, says in (
        (words, {str(script): "0"}, "has another file"),
        (words, {str(tmp_path / "none.py"): "0"}, "has no file"),
        (["no-such-program"], {}, "has no program"),
    ):
        with pytest.raises(WorkerError, match=says):
            _check(given, held)


def test_a_run_that_nobody_wants_ends(tmp_path: Path) -> None:
    words = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    start = time.monotonic()
    reply = made_in(tmp_path, words, b"", ".csv", 600.0, lambda: time.monotonic() < start + 1)
    assert reply.reason == "interrupted"
    assert time.monotonic() < start + 30
