"""Pieces of work give the same results in this process, in processes of this machine and on a cluster."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dask_processes import dask
from pieces_of_work import counted, divides, fails, process_of, square, waits

from dpassay.base.errors import InputError
from dpassay.mechanisms.compute import executor as places
from dpassay.mechanisms.compute import workers
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor
from dpassay.mechanisms.compute.workers import WorkerError, executor


@pytest.fixture(scope="module", params=["this process", "processes", "cluster"])
def executors(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Executor, int]]:
    if request.param == "this process":
        yield THIS_PROCESS, 1
    elif request.param == "processes":
        with executor(2, None) as two:
            yield two, 2
    else:
        with dask(tmp_path_factory.mktemp("dask") / "dask", 2) as cluster, executor(None, cluster.address) as two:
            yield two, 2


def test_map_is_in_order(executors: tuple[Executor, int]) -> None:
    do, _ = executors
    assert list(do.map(square, range(20), 1)) == [number * number + 1 for number in range(20)]
    assert list(do.map(square, [])) == []


def test_pieces_are_done_side_by_side(executors: tuple[Executor, int]) -> None:
    do, count = executors
    assert do.workers == count
    assert len(set(do.map(process_of, range(6)))) == count


def test_map_takes_few_items_ahead(executors: tuple[Executor, int]) -> None:
    do, count = executors
    taken: list[int] = []
    results = do.map(square, (taken.append(number) or number for number in range(1000)))  # type: ignore[func-returns-value]
    next(results)
    assert len(taken) <= 2 * count
    results.close()  # type: ignore[attr-defined]


def test_the_first_that_is_done(executors: tuple[Executor, int]) -> None:
    do, count = executors
    pieces = [do.submit(waits, seconds) for seconds in ((0.0,) if count == 1 else (5.0, 0.0))]
    first = do.first(pieces)
    assert first is pieces[-1]
    assert first.result() == 0.0


def test_a_name_stays_with_its_worker(executors: tuple[Executor, int]) -> None:
    do, count = executors
    names = [f"{id(do)}-{number}" for number in range(count)]
    seen = [[do.submit(counted, name, near=name).result() for name in names] for _ in range(3)]
    assert [[times for _, times in row] for row in seen] == [[1] * count, [2] * count, [3] * count]
    assert len({process for process, _ in seen[0]}) == count


def test_errors_come_back(executors: tuple[Executor, int]) -> None:
    do, count = executors
    with pytest.raises(ZeroDivisionError):
        do.submit(divides, 0).result()
    with pytest.raises(WorkerError if count == 1 else InputError, match="worker: has another model"):
        do.submit(fails, 0).result()
    assert do.submit(square, 3).result() == 9


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"workers": 0}, "--workers: workers must be"),
        ({"workers": 1, "cluster": "tcp://127.0.0.1:1"}, "leave one of them out"),
        ({"cluster": "tcp://127.0.0.1:1"}, "no scheduler answers"),
        ({"cluster": "nonsense://x"}, "no scheduler answers"),
    ],
)
def test_what_cannot_be(given: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpassay.mechanisms.compute.workers.CONNECT", 0.5)
    with pytest.raises(InputError, match=words):
        executor(**{"workers": None, "cluster": None, **given})


def test_a_cluster_without_workers(tmp_path: Path) -> None:
    with dask(tmp_path / "dask", 0) as cluster, pytest.raises(InputError, match="has no workers"):
        executor(None, cluster.address)


def test_what_is_kept() -> None:
    assert places.find("kept") is None
    assert places.kept("kept", lambda: 1) == places.kept("kept", lambda: 2) == places.find("kept") == 1
    places.keep("kept", 3)
    assert places.find("kept") == 3
    places.forget("kept", "not kept")
    assert places.find("kept") is None


def test_what_is_not_used_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("dpassay.mechanisms.compute.executor.time.monotonic", lambda: now[0])
    places.keep("old", 1)
    now[0] = 601.0
    places.keep("new", 2)
    assert places.find("old") is None
    assert places.find("new") == 2
    places.forget("new")


def test_a_function_that_a_worker_cannot_import(
    executors: tuple[Executor, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    do, count = executors
    if count == 1:
        return
    module = types.ModuleType("only_here")
    monkeypatch.setitem(sys.modules, "only_here", module)
    monkeypatch.setattr(square, "__module__", "only_here")
    module.square = square  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"cannot import what it is sent .*No module named 'only_here'"):
        do.submit(square, 1).result()
    monkeypatch.undo()
    assert do.submit(square, 1).result() == 1


def test_workers_with_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with dask(tmp_path / "dask", 1) as cluster:
        monkeypatch.setattr(workers, "_USED", ("dpassay.base",))
        with pytest.raises(InputError, match=r"another dpassay .* than this machine; install the same"):
            executor(None, cluster.address)


@pytest.mark.parametrize(("version", "words"), [("0.1", "has dpassay 0.1, and this"), (OSError(), "has no dpassay")])
def test_workers_with_another_version(version: object, words: str) -> None:
    class Client:
        def run(self, *_: object, on_error: str) -> dict[str, object]:
            return {"tcp://1": version}

    with pytest.raises(InputError, match=words):
        workers._check_code(Client())


def test_a_scheduler_that_is_gone_is_one_line() -> None:
    """Whenever that is noticed: also where workers are asked for, before a piece is sent."""

    def gone() -> None:
        raise ConnectionResetError("in <TCP (closed) ConnectionPool.ncores>")

    workers_of_it = workers.Workers(types.SimpleNamespace(nthreads=gone))
    with pytest.raises(InputError, match="the scheduler of the cluster is gone while work was under way"):
        workers_of_it.submit(square, 1, near="one")
    with pytest.raises(InputError, match="the scheduler of the cluster is gone while work was under way"):
        workers_of_it.workers  # noqa: B018
