"""Repetitions do not depend on how many workers run them, nor on whether and where they were interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import repeated_jobs as jobs

from dpassay.attacks.black_box.repetitions import FILE, repeat
from dpassay.base.errors import InputError
from dpassay.mechanisms.compute import workers
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor
from dpassay.mechanisms.compute.workers import executor
from dpassay.mechanisms.primitives.randomness import cores


@pytest.fixture(scope="module")
def two() -> Iterator[Executor]:
    with executor(2, None) as result:
        yield result


def expected(count: int, seed: int = 5) -> list[Any]:
    return [
        {
            "index": i,
            "normal": np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(i,))).normal(size=2).tolist(),
        }
        for i in range(count)
    ]


def test_this_process_and_two_workers_give_the_same(two: Executor) -> None:
    steps: list[tuple[int, int]] = []
    assert repeat(jobs.draw, 20, seed=5) == expected(20)
    assert repeat(
        jobs.draw, 20, seed=5, executor=two, progress=lambda done, total: steps.append((done, total))
    ) == expected(20)
    assert steps == [(done, 20) for done in range(21)]
    assert repeat(jobs.draw, 20, seed=6) != expected(20)
    assert repeat(jobs.draw, 0, seed=5, executor=two) == []


def test_what_is_done_is_not_run_again_and_the_count_may_grow(tmp_path: Path, two: Executor) -> None:
    job = partial(jobs.draw_and_note, str(tmp_path))
    assert repeat(job, 5, seed=5, folder=tmp_path / "kept") == expected(5)
    assert repeat(job, 9, seed=5, folder=tmp_path / "kept", executor=two) == expected(9)
    assert repeat(job, 3, seed=5, folder=tmp_path / "kept") == expected(3)
    assert {file.name: file.read_text() for file in tmp_path.glob("ran-*")} == {f"ran-{i}": "x" for i in range(9)}
    assert (tmp_path / "kept" / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.grid
@pytest.mark.parametrize(("workers", "number"), [(None, signal.SIGKILL), (2, signal.SIGKILL), (2, signal.SIGINT)])
def test_a_killed_run_goes_on(tmp_path: Path, workers: int | None, number: signal.Signals) -> None:
    program = (
        "import signal\nfrom dpassay.attacks.black_box.repetitions import repeat\nimport repeated_jobs\n"
        "from dpassay.mechanisms.compute.workers import executor\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job begins by ignoring it
        "if __name__ == '__main__':\n"
        f"    with executor({workers}, None) as do:\n"
        f"        repeat(repeated_jobs.slow_draw, 200, seed=5, executor=do, folder={str(tmp_path)!r})\n"
    )
    (tmp_path / "program.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(Path(jobs.__file__).parent)}
    command = [sys.executable, str(tmp_path / "program.py")]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    file = tmp_path / FILE
    deadline = time.monotonic() + 120
    while not file.exists() or file.read_bytes().count(b"\n") < 4:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    if number is signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does it: to the workers too
        _, errors = process.communicate(timeout=60)
        assert errors.count("Traceback") == 1
        assert errors.rstrip().endswith("KeyboardInterrupt")
    else:
        process.send_signal(number)
        process.communicate(timeout=60)  # its workers end by themselves
    lines = file.read_bytes().count(b"\n")
    assert 4 <= lines < 201
    file.write_bytes(file.read_bytes() + b'{"index": 150, "resu')  # as if cut off
    assert repeat(jobs.draw, 200, seed=5, folder=tmp_path) == expected(200)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(row["index"] for row in rows[1:]) == list(range(200))


def test_an_interruption_leaves_what_is_done(tmp_path: Path, two: Executor) -> None:
    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    for do in (THIS_PROCESS, two):
        folder = tmp_path / str(do.workers)
        with pytest.raises(KeyboardInterrupt):
            repeat(jobs.draw, 50, seed=5, executor=do, folder=folder, progress=stop)
        assert (folder / FILE).read_bytes().count(b"\n") == 5
        assert repeat(jobs.draw, 50, seed=5, folder=folder) == expected(50)


def test_an_interruption_does_not_wait_for_what_is_running() -> None:
    def stop(done: int, total: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), executor(2, None) as do:
        repeat(jobs.sleep_but_at_first, 2, seed=5, executor=do, progress=stop)
    assert time.monotonic() - start < 100


def test_results_of_other_settings_are_refused(tmp_path: Path) -> None:
    repeat(jobs.draw, 2, seed=5, folder=tmp_path, settings={"sigma": 1.0})
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(ValueError, match=r"repetitions\.jsonl: holds repetitions of other settings; choose another"):
        repeat(jobs.draw, 2, seed=5, folder=tmp_path, settings={"sigma": 2.0})
    with pytest.raises(ValueError, match="holds repetitions of seed 5, not 6; choose another folder"):
        repeat(jobs.draw, 2, seed=6, folder=tmp_path, settings={"sigma": 1.0})
    assert (tmp_path / FILE).read_bytes() == before
    assert repeat(jobs.draw, 3, seed=5, folder=tmp_path, settings={"sigma": 1.0}) == expected(3)


@pytest.mark.parametrize(
    "body",
    [b"notes\n", b"[1]\n", b'{"repetitions": 99, "seed": 5}\n', b"HEADER{\n", b'HEADER{"index": -1, "result": 0}\n'],
)
def test_a_file_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path, body: bytes) -> None:
    repeat(jobs.draw, 0, seed=5, folder=tmp_path)
    body = body.replace(b"HEADER", (tmp_path / FILE).read_bytes())
    (tmp_path / FILE).write_bytes(body)
    with pytest.raises(ValueError, match=r"repetitions\.jsonl: line [12] is not a repetition of version 1"):
        repeat(jobs.draw, 2, seed=5, folder=tmp_path)
    assert (tmp_path / FILE).read_bytes() == body


@pytest.mark.parametrize("here", [True, False])
def test_an_exception_names_its_repetition(tmp_path: Path, two: Executor, here: bool) -> None:
    with pytest.raises(KeyError, match="no such thing") as caught:
        repeat(jobs.fail_at_three, 10, seed=5, executor=THIS_PROCESS if here else two, folder=tmp_path)
    assert "in repetition 3 of seed 5" in caught.value.__notes__
    rows = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()[1:]]
    assert all(row["index"] == row["result"] != 3 for row in rows)
    if here:
        assert [row["index"] for row in rows] == [0, 1, 2]


def test_what_was_done_before_a_failure_in_the_same_piece_is_kept(tmp_path: Path, two: Executor) -> None:
    with pytest.raises(KeyError):
        repeat(jobs.fail_at_three, 32, seed=5, executor=two, folder=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()[1:]]
    assert {0, 1, 2} <= {row["index"] for row in rows}


def test_an_exception_that_cannot_be_sent_is_told(two: Executor) -> None:
    with pytest.raises(RuntimeError, match="Stubborn: this and that") as caught:
        repeat(jobs.raise_stubborn, 2, seed=5, executor=two)
    assert caught.value.__notes__[0].startswith("in repetition ")


def test_what_a_killed_worker_had_is_run_again(tmp_path: Path, two: Executor) -> None:
    job = partial(jobs.die_at_three_once, str(tmp_path / "died"))
    assert repeat(job, 8, seed=5, executor=two) == list(range(8))
    assert (tmp_path / "died").exists()


@pytest.mark.slow
def test_what_kills_every_worker_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_FAILURES", 1)
    with pytest.raises(InputError, match="the workers of a piece of work died, one after"), executor(1, None) as do:
        repeat(jobs.die_at_three, 8, seed=5, executor=do)


def test_any_function_runs_on_processes_of_this_machine_and_what_cannot_be_sent_is_refused(two: Executor) -> None:
    assert repeat(lambda index, seed: index, 4, seed=5, executor=two) == [0, 1, 2, 3]
    lock = threading.Lock()
    with pytest.raises(ValueError, match=r"cannot be sent to another process .*lock.*; use this process, or functions"):
        repeat(lambda index, seed: lock.locked(), 4, seed=5, executor=two)
    assert repeat(lambda index, seed: lock.locked(), 2, seed=5) == [False] * 2


def test_results_must_be_json_and_come_back_as_json(tmp_path: Path) -> None:
    assert repeat(lambda index, seed: (index, float("-inf")), 1, seed=5) == [[0, float("-inf")]]
    with pytest.raises(TypeError, match="not JSON serializable"):
        repeat(lambda index, seed: np.float32(1), 1, seed=5)


def test_processes_share_the_threads_of_this_machine(two: Executor) -> None:
    each = [os.environ.get(name, str(max(1, cores() // 2))) for name in jobs.THREADS]
    assert repeat(jobs.threads, 2, seed=5, executor=two) == [each] * 2


def test_a_file_that_is_being_written_is_refused(tmp_path: Path) -> None:
    def again(index: int, seed: np.random.SeedSequence) -> Any:
        return repeat(jobs.draw, 1, seed=5, folder=tmp_path)

    with pytest.raises(ValueError, match="in use by another process"):
        repeat(again, 1, seed=5, folder=tmp_path)


@pytest.mark.parametrize(("name", "value"), [("count", -1), ("seed", -1), ("seed", 1.5)])
def test_numbers_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        repeat(jobs.draw, **{"count": 1, "seed": 1, name: value})
