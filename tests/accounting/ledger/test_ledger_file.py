"""The file of a ledger: who may read it, what is no ledger, two writers, several ledgers, long ones."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import shutil
import sqlite3
import stat
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import DpEvent, dp_event
from ledger_forgery import append_forged, rewrite_chain, stored_rows, tamper

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ledger.chain import verify_export
from dpassay.accounting.ledger.entries import AlreadyCommitted, Charge, Commit, LedgerError, canonical
from dpassay.accounting.ledger.ledger import Ledger, compose_ledgers, open_ledgers, relation_of
from dpassay.accounting.ledger.run import Run

COUNTS = dp_event.DiscreteLaplaceDpEvent(0.1, 1)
STEPS = 60
FORK: Any = multiprocessing.get_context("fork") if hasattr(os, "fork") else None
needs_fork = pytest.mark.skipif(FORK is None, reason="needs a POSIX system")


def one_line(caught: pytest.ExceptionInfo[LedgerError]) -> str:
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_only_the_owner_may_read(little: Any, path: Path, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with Ledger.open(path) as ledger:
            little.run(ledger)
            ledger.export(tmp_path / "export.jsonl")
            assert {file.name for file in tmp_path.iterdir()} >= {"ledger.sqlite", "ledger.sqlite-wal", "export.jsonl"}
            for file in tmp_path.iterdir():
                assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    finally:
        os.umask(old)


def test_the_journal_is_a_synchronous_log(path: Path) -> None:
    with Ledger.open(path) as ledger:
        database = ledger._store.database
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def make_text(path: Path) -> None:
    path.write_text("not a database at all\n" * 100)


def make_other_database(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE entries(seq INTEGER)")


def make_newer(path: Path) -> None:
    Ledger.open(path).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 7")


def drop_trigger(path: Path) -> None:
    Ledger.open(path).close()
    with sqlite3.connect(path) as database:
        database.execute("DROP TRIGGER entries_never_go")


def make_damaged(path: Path) -> None:
    Ledger.open(path).close()
    content = bytearray(path.read_bytes())
    content[40:60] = b"\xff" * 20
    path.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (make_text, "this file is not a ledger"),
        (make_other_database, "this file is not a ledger of dpassay"),
        (make_newer, "a ledger of format 7; this dpassay reads formats 1 and 2, update it"),
        (drop_trigger, "tables or triggers were changed"),
        (make_damaged, "the ledger cannot be read or written"),
        (lambda path: path.touch(), "this file is not a ledger of dpassay"),
        (lambda path: path.mkdir(), "a ledger is a file"),
    ],
)
def test_what_is_no_ledger_is_refused_and_left_alone(path: Path, make: Any, says: str, read_only: bool) -> None:
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(LedgerError, match=says) as caught:
        Ledger.open(path, read_only=read_only)
    assert one_line(caught).startswith(str(path))
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_missing_ledger_is_not_made_by_reading(path: Path) -> None:
    ways: list[dict[str, Any]] = [{"read_only": True}, {"create": False}]
    for options in ways:
        with pytest.raises(LedgerError, match="there is no ledger here"):
            Ledger.open(path, **options)
    with pytest.raises(LedgerError, match="no such file or directory"):
        Ledger.open(path.parent / "nowhere" / "ledger")
    assert not list(path.parent.iterdir())


def test_a_new_ledger_is_whole_or_not_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", fail)
        patch.setattr(os, "replace", fail)
        with pytest.raises(LedgerError, match="no space left on device"):
            Ledger.open(path)
        assert not list(path.parent.iterdir())
        patch.undo()
        patch.setattr(os, "link", fail)  # as on a file system without links
        with Ledger.open(path) as ledger:
            assert ledger.entries == 1
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_locked_ledger_says_so(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        run = little.begin(ledger)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        ledger._store.database.execute("PRAGMA busy_timeout = 50")
        with pytest.raises(LedgerError, match="locked by another process") as caught:
            run.step(charge=little.charge(0))
        assert "\n" not in str(caught.value)
        with pytest.raises(LedgerError, match=r"locked by another process for more than 0\.05 s"):
            Ledger.open(path, timeout=0.05)
        with Ledger.open(path, read_only=True) as reader:  # reading does not wait
            assert reader.runs() == ["run"]
        other.execute("ROLLBACK")
        other.close()
        run.step(charge=little.charge(0))


def test_a_reader_never_writes(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        little.run(ledger)
    before = path.read_bytes()
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()
        run = ledger.run("run")
        for write in (lambda: run.step(charge=little.charge(7)), run.finish, lambda: little.begin(ledger, "new")):
            with pytest.raises(LedgerError, match="open for reading only"):
                write()
    assert path.read_bytes() == before


def test_reading_leaves_nothing_behind(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        little.run(ledger)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with Ledger.open(path, read_only=True) as ledger:
        ledger.event()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@needs_fork
def test_a_reader_tidies_up_after_a_writer_that_was_killed(little: Any, path: Path) -> None:
    def work() -> None:
        little.run(Ledger.open(path))
        os._exit(0)  # without closing the file

    process = FORK.Process(target=work)
    process.start()
    process.join()
    assert {file.name for file in path.parent.iterdir()} == {path.name, f"{path.name}-wal", f"{path.name}-shm"}
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.event() == little.plan
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.event() == little.plan


@needs_fork
def test_readers_do_not_disturb_a_writer(path: Path) -> None:
    """Readers come and go while another process writes; what they see is verified, and only ever grows."""
    ready, answers = FORK.Barrier(2), FORK.Queue()
    writer = FORK.Process(target=write_run, args=(path, "run", ready, answers))
    writer.start()
    Ledger.open(path).close()
    ready.wait()
    seen = []
    while writer.is_alive() and answers.empty():
        with Ledger.open(path, read_only=True) as ledger:
            seen += [ledger.entries, ledger.entries]
            ledger.verify(expected_head=ledger.head)
    _, kept, lost = answers.get(timeout=120)
    writer.join()
    assert (writer.exitcode, lost, len(kept)) == (0, 0, STEPS)
    assert seen == sorted(seen)
    assert len(set(seen)) > 2, "nothing was written while it was read"
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.run("run").finished
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_entries_of_another_process_are_verified_before_they_are_read(little: Any, path: Path) -> None:
    with Ledger.open(path) as reader, Ledger.open(path) as writer:
        run = little.begin(writer)
        run.step(charge=little.charge(0))
        assert reader.run("run").charged("tokens/0")
        assert (reader.entries, reader.head) == (3, writer.head)
        forged = canonical({**little.charge(1).to_json(), "event": events.to_json(COUNTS)})
        append_forged(path, "run", "charge", forged)
        for read in (reader.event, lambda: reader.head, lambda: reader.run("run").charged("tokens/1")):
            with pytest.raises(LedgerError, match="entry 4: 'tokens/1' charges partition 'slots' more than"):
                read()
        with pytest.raises(LedgerError, match="entry 4: 'tokens/1' charges"):
            run.step(charge=little.charge(2))
    assert len(stored_rows(path)) == 4


def test_what_was_changed_while_the_ledger_was_open_is_not_read(little: Any, path: Path) -> None:
    """The chain was made anew after it was verified: only the hashes that were kept show it."""
    for read_only in (True, False):
        path.unlink(missing_ok=True)
        with Ledger.open(path) as ledger:
            little.run(ledger)
        with Ledger.open(path, read_only=read_only) as ledger:
            run = ledger.run("run")
            rewrite_chain(path, lambda seq, run, kind, body: (run, kind, body.replace("33.3", "11.1")))
            for read in (ledger.event, ledger.runs, run.realised, lambda: ledger.head, lambda: ledger.run("run")):
                with pytest.raises(LedgerError, match=r"entry \d+ was changed while the ledger was open"):
                    read()


def test_what_was_taken_out_while_the_ledger_was_open_is_missed(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        little.run(ledger)
        tamper(path, ("DELETE FROM entries WHERE seq = 5", ()))
        for read in (ledger.event, ledger.events, ledger.run("run").event):
            with pytest.raises(LedgerError, match="entries were taken out while the ledger was open"):
                read()


def test_a_refused_step_leaves_nothing_behind(little: Any, path: Path) -> None:
    """What was checked and undone does not count, neither in the file nor in what the plan leaves room for."""
    with Ledger.open(path) as ledger:
        run = little.begin(ledger)
        for _ in range(2):
            with pytest.raises(LedgerError, match="'tokens/9' charges partition 'slots' more"):
                run.step(charge=little.charge(9, COUNTS))
        assert ledger.entries == 2
        little.run(ledger)
        assert ledger.verify() == ledger.head


def test_a_closed_ledger_says_so(little: Any, path: Path) -> None:
    ledger = Ledger.open(path)
    run = little.begin(ledger)
    ledger.close()
    ledger.close()
    for use in (ledger.runs, lambda: run.step(charge=little.charge(0)), lambda: ledger.head):
        with pytest.raises(LedgerError, match="the ledger is closed"):
            use()


def in_a_fork(work: Callable[[], str], *, as_nobody: bool = False) -> str:
    """What `work` returns in a child process, where asked without the rights of root."""

    def child(answers: Any) -> None:
        if as_nobody and os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        answers.send(work())

    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=child, args=(sender,))
    process.start()
    sender.close()
    answer = receiver.recv()
    process.join()
    return str(answer)


@needs_fork
def test_a_read_only_folder_can_be_read_and_not_written(little: Any) -> None:
    def attempt(**options: Any) -> str:
        try:
            with Ledger.open(path, timeout=0.2, **options) as ledger:
                return f"verified {ledger.verify()}"
        except LedgerError as error:
            return str(error)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        with Ledger.open(path) as ledger:
            little.run(ledger)
            head = ledger.head
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        try:
            assert in_a_fork(lambda: attempt(read_only=True), as_nobody=True) == f"verified {head}"
            refused = in_a_fork(attempt, as_nobody=True)
            assert "cannot be written or opened here; check the rights" in refused
            assert len(refused.splitlines()) == 1
            path = Path(folder) / "new.sqlite"
            assert in_a_fork(attempt, as_nobody=True) == f"{path}: permission denied"
        finally:
            Path(folder).chmod(0o755)


@needs_fork
def test_a_fork_must_open_the_ledger_for_itself(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        run = little.begin(ledger)

        def use() -> str:
            try:
                run.step(charge=little.charge(0))
            except LedgerError as error:
                return str(error)
            return "written"

        assert in_a_fork(use).endswith("each process must open the ledger for itself")
        assert ledger.entries == 2


def write_run(path: Path, name: str, ready: Any, answers: Any) -> None:
    """Takes the steps of a run, maybe beside another process in the same run; answers with the values it kept."""
    kept, lost = [], 0
    ready.wait()
    with Ledger.open(path) as ledger:
        run = ledger.begin(
            name, plan=events.compose([(COUNTS, STEPS)]), adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about={}
        )
        for step in range(STEPS):
            run.step(charge=Charge(key=f"s/{step}", event=COUNTS, stage="s"))
            value = os.urandom(8).hex()
            time.sleep(0.002)  # as long as a fast forward pass; without it one process keeps the lock to itself
            try:
                run.step(commit=Commit(key=f"s/{step}", value=value))
            except AlreadyCommitted as error:
                value, lost = error.outcome.value, lost + 1
            kept.append(value)
        run.finish()
    answers.put((name, kept, lost))


def values_in(run: Run) -> list[Any]:
    """What every step committed."""
    results = [run.outcome(f"s/{step}") for step in range(STEPS)]
    return [each.value for each in results if each is not None]


def race(path: Path, *names: str) -> list[tuple[str, list[str], int]]:
    """Processes that begin at once, on a file that none made; (run, values kept, commits lost) of each."""
    ready, answers = FORK.Barrier(len(names)), FORK.Queue()
    children = [FORK.Process(target=write_run, args=(path, name, ready, answers)) for name in names]
    for child in children:
        child.start()
    results = [answers.get(timeout=120) for _ in children]
    for child in children:
        child.join()
        assert child.exitcode == 0
    return results


@needs_fork
def test_two_processes_write_two_runs_into_one_chain(path: Path) -> None:
    result = race(path, "a", "b")
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()
        assert ledger.entries == 1 + 2 * (2 + 2 * STEPS)
        assert ledger.event() == events.compose([(COUNTS, 2 * STEPS)])
        for name, kept, lost in result:
            assert lost == 0
            assert values_in(ledger.run(name)) == kept
    with sqlite3.connect(path) as database:
        order = [run for (run,) in database.execute("SELECT run FROM entries WHERE seq > 1 ORDER BY seq")]
    # The two begin together; were one whole run before the other, nothing would have been tested.
    assert sum(a != b for a, b in itertools.pairwise(order)) > 1


@needs_fork
def test_two_processes_in_one_run_keep_the_same_values(path: Path) -> None:
    (_, first, lost), (_, second, lost_too) = race(path, "run", "run")
    assert first == second
    assert lost + lost_too == STEPS, "each key is won once and lost once"
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()
        assert ledger.entries == 3 + 2 * STEPS, "no step is charged twice"
        assert ledger.event() == ledger.run("run").plan
        assert values_in(ledger.run("run")) == first


def test_ledgers_over_one_data_set_compose(little: Any, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    for file in paths[:2]:
        with Ledger.open(file) as ledger:
            little.run(ledger)

    def composed(*chosen: Path) -> DpEvent:
        with open_ledgers(chosen) as ledgers:
            return compose_ledgers(ledgers)

    assert composed(paths[0]) == little.plan
    assert composed(*paths[:2]) == events.compose([(little.plan, 2)])
    with open_ledgers(paths[:2]) as ledgers:
        assert relation_of(ledgers) == (Adjacency.ADD_REMOVE, Unit())
    with pytest.raises(ValueError, match=r"a copy of .*; give each ledger once"):
        composed(paths[0], paths[0])
    shutil.copy(paths[0], paths[2])
    with pytest.raises(ValueError, match=r"a copy of .*; give each ledger once"):
        composed(*paths)
    paths[2].unlink()
    for changes, says in (
        ({"adjacency": Adjacency.REPLACE_ONE}, "has add_remove, record; .* has replace_one, record"),
        ({"unit": Unit("group", 3)}, r"has add_remove, record; .* has add_remove, group\(3\)"),
    ):
        with Ledger.open(paths[2]) as ledger:
            little.begin(ledger, **changes)
        with pytest.raises(ValueError, match=f"different adjacencies or units do not compose: .*{says}"):
            composed(*paths)
        paths[2].unlink()
    Ledger.open(paths[2]).close()
    with pytest.raises(ValueError, match="holds no run"):
        composed(*paths)
    with pytest.raises(ValueError, match="there is no ledger here"):
        composed(tmp_path / "absent")


def test_runs_of_different_adjacency_do_not_compose(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        assert ledger.event() == dp_event.NoOpDpEvent()
        little.begin(ledger, "a")
        little.begin(ledger, "b", adjacency=Adjacency.REPLACE_ONE)
        assert ledger.event("a") == dp_event.NoOpDpEvent()
        with pytest.raises(ValueError, match="run 'a' has add_remove, record; run 'b' has replace_one, record"):
            ledger.event()
        with pytest.raises(ValueError, match="no run 'c'"):
            ledger.event("c")


def selections(little: Any, steps: int) -> DpEvent:
    """The plan of as many selections in each slot."""
    return events.ParallelDpEvent([events.compose([(little.selection, steps)])] * len(little.slots), False)


@pytest.fixture(scope="module")
def long_ledger(little: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10,000 steps, written in one transaction to save the test 10,000 waits for the disk."""
    file = tmp_path_factory.mktemp("long") / "ledger.sqlite"
    with Ledger.open(file) as ledger:
        little.begin(ledger, plan=selections(little, 10_000))
        with ledger._store.transaction():
            for step in range(10_000):
                ledger._store.append("run", "charge", little.charge(step).to_json())
                ledger._store.append("run", "commit", {"key": f"tokens/{step}", "realised": None, "value": [step]})
    return file


@pytest.mark.slow
def test_a_long_run_resumes_at_once(little: Any, long_ledger: Path) -> None:
    started = time.process_time()
    with Ledger.open(long_ledger) as ledger:
        run = little.begin(ledger, plan=selections(little, 10_000))
        assert run.last_committed("tokens") == 10_000
        assert run.outcome("tokens/9999").value == [9999]
    # It takes 0.2 s; a scan of the file for each key would take minutes.
    assert time.process_time() - started < 5


def test_a_ledger_is_read_row_by_row(little: Any, path: Path, tmp_path: Path) -> None:
    with Ledger.open(path) as ledger:
        little.begin(ledger, plan=selections(little, 400))
        with ledger._store.transaction():
            for step in range(400):
                ledger._store.append("run", "charge", little.charge(step).to_json())
                ledger._store.append("run", "commit", {**little.commit(step).to_json(), "value": "x" * 8000})
    size = path.stat().st_size
    with Ledger.open(path, read_only=True) as ledger:
        tracemalloc.start()
        try:
            ledger.verify()
            ledger.event()
            ledger.events()
            ledger.run("run").realised()
            ledger.export(tmp_path / "export.jsonl")
            verify_export(tmp_path / "export.jsonl")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    # Held at once, the rows would take as much as the file and more.
    assert peak < size / 10, f"{peak} bytes for a file of {size}"
