"""What pieces of work need is made once by each worker, and replaced by another of its kind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from pieces_of_work import cannot_be_made, made, raises_unsendable, with_need

from dpassay.base.errors import InputError
from dpassay.mechanisms.compute import needs
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor
from dpassay.mechanisms.compute.needs import Need, map_with
from dpassay.mechanisms.compute.workers import executor


@pytest.fixture(scope="module")
def two() -> Iterator[Executor]:
    with executor(2, None) as workers:
        yield workers


def need(number: int, kind: str = "number") -> Need[tuple[int, int]]:
    return Need(kind, made(number), lambda: (str(number), partial(made, number)))


def test_each_worker_makes_its_own_once(two: Executor) -> None:
    for number in (1, 2, 1):
        results = list(map_with(two, with_need, range(50), need(number)))
        assert [total for _, _, total in results] == list(range(number, number + 50))
        assert all(here == maker for here, maker, _ in results)
        assert len({here for here, _, _ in results}) == 2


def test_this_process_uses_its_own() -> None:
    results = list(map_with(THIS_PROCESS, with_need, range(3), Need("number", (7, 1), cannot_be_made)))  # type: ignore[arg-type]
    assert [row[1:] for row in results] == [(7, 1), (7, 2), (7, 3)]


def test_a_worker_that_lacks_it_is_sent_it_then(two: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "_AHEAD", 0.5)  # the first piece brings it to one of two workers
    results = list(map_with(two, with_need, range(20), need(5, "late"), near=str))
    assert [total for _, _, total in results] == list(range(5, 25))
    assert len({here for here, _, _ in results}) == 2


def test_few_items_are_taken_ahead(two: Executor) -> None:
    taken: list[int] = []
    results = map_with(two, with_need, (taken.append(number) or number for number in range(1000)), need(1))  # type: ignore[func-returns-value]
    next(results)
    assert len(taken) <= 4
    results.close()  # type: ignore[attr-defined]


def test_what_cannot_be_made_is_one_line(two: Executor) -> None:
    lacking = Need("number", None, lambda: ("x", cannot_be_made))
    with pytest.raises(InputError, match=r"worker on .*: has no such number: no such file$"):
        list(map_with(two, with_need, range(3), lacking))


def test_an_error_that_cannot_be_sent(two: Executor) -> None:
    with pytest.raises(RuntimeError, match="Unsendable: one line"):
        two.submit(raises_unsendable, 1).result()
