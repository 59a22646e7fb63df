"""Independent repetitions of a job, over several processes and resumable."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import multiprocessing
import os
import pickle
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from dpassay.base import validate
from dpassay.base.errors import naming

Job: TypeAlias = Callable[[int, np.random.SeedSequence], Any]
Step: TypeAlias = Callable[[int, int], None]

FILE = "repetitions.jsonl"
_VERSION = 1
_MAX_BATCH = 64  # repetitions that are sent to a worker at once
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def repeat(
    job: Job,
    count: int,
    *,
    seed: int,
    workers: int = 1,
    folder: Path | str | None = None,
    progress: Step | None = None,
    settings: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Runs `job(index, seed)` for index 0, …, count − 1.

    Repetition i receives ``SeedSequence(seed, spawn_key=(i,))``, so its result does not depend on the number of
    workers, the order, or interruptions. (With one worker the job runs in this process, with its number of threads;
    several workers are new processes with one thread each. Sums of floats over threads may differ in the last bits.)

    Args:
        job: returns a JSON value; a tuple is returned as a list. For more than one worker it must be importable: a
            function at the top level of a module, or a `functools.partial` of one.
        count: number of repetitions.
        seed: a whole number of at least 0.
        workers: number of processes.
        folder: where results are saved as they arrive, in `repetitions.jsonl`. Saved repetitions are not run again;
            `count` may have increased since. An incomplete last line is dropped.
        progress: called with the number of finished repetitions and `count`.
        settings: JSON values that identify the job. Their hash is saved, and a folder with results of other settings is
            refused; include everything that results depend on.

    Returns:
        The results in order of their index.

    Raises:
        ValueError: if the folder has results of other settings or another seed, or the job cannot be sent to a process.
        Exception: raised by a job, with a note that names the repetition. Finished results are kept.
    """
    validate.integer(count=count)
    validate.integer(seed=seed)
    validate.integer(minimum=1, workers=workers)
    with contextlib.ExitStack() as stack:
        store = None
        texts: dict[int, str] = {}
        if folder is not None:
            store = _Store(stack.enter_context(_opened(Path(folder))), Path(folder) / FILE)
            texts = store.read(_header(seed, settings))
            stack.callback(store.sync)
        missing = deque(index for index in range(count) if index not in texts)
        done = count - len(missing)
        if progress is not None:
            progress(done, count)
        run = _in_processes(job, missing, seed, workers) if workers > 1 and missing else _in_process(job, missing, seed)
        with contextlib.closing(run):
            for index, text in run:
                texts[index] = text
                if store is not None:
                    store.append(index, text)
                done += 1
                if progress is not None:
                    progress(done, count)
    return [json.loads(texts[index]) for index in range(count)]


Results: TypeAlias = Generator[tuple[int, str], None, None]


def _run_one(job: Job, index: int, seed: int) -> str:
    try:
        return json.dumps(job(index, np.random.SeedSequence(seed, spawn_key=(index,))))
    except Exception as error:
        error.add_note(f"in repetition {index} of seed {seed}")
        raise


def _in_process(job: Job, indices: deque[int], seed: int) -> Results:
    while indices:
        index = indices.popleft()
        yield index, _run_one(job, index, seed)


def _in_processes(job: Job, indices: deque[int], seed: int, workers: int) -> Results:
    """Results as they arrive. Workers receive few repetitions at a time, fewer towards the end."""
    try:
        sent = pickle.dumps(job)
    except Exception as error:
        raise ValueError(
            f"the job cannot be sent to another process ({error}): use a function at the top level of a module, or one "
            "worker"
        ) from None
    open_orders: dict[Connection, deque[int]] = {}
    processes: dict[Connection, Any] = {}
    try:
        for _ in range(min(workers, len(indices))):
            ours, process = _start(sent, seed)
            processes[ours], open_orders[ours] = process, deque()
        while indices or any(open_orders.values()):
            for connection, order in open_orders.items():
                if not order and indices:
                    size = max(1, min(_MAX_BATCH, len(indices) // (4 * len(processes))))
                    order.extend(indices.popleft() for _ in range(size))
                    with contextlib.suppress(BrokenPipeError):  # the worker died; reading from it raises the error
                        connection.send(list(order))
            for ready in wait([connection for connection, order in open_orders.items() if order]):
                assert isinstance(ready, Connection)
                index = open_orders[ready][0]
                text = _received(ready, processes[ready], index)
                open_orders[ready].popleft()
                yield index, text
    finally:
        for connection, process in processes.items():
            process.terminate()
            connection.close()
        for process in processes.values():
            process.join()


def _start(sent: bytes, seed: int) -> tuple[Connection, Any]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, sent, seed))
    with _one_thread():
        process.start()
    theirs.close()
    return ours, process


def _received(connection: Connection, process: Any, index: int) -> str:
    """The result of a repetition as JSON text.

    Raises:
        Exception: raised by the job, or because its process ended.
    """
    try:
        text, error, trace = connection.recv()
    except (EOFError, ConnectionResetError):
        process.join()
        raise RuntimeError(
            f"the process of repetition {index} ended with exit code {process.exitcode}: it was killed, ran out of "
            "memory, or could not start (a script needs its work under `if __name__ == '__main__':`)"
        ) from None
    if text is not None:
        return str(text)
    raised = _revived(error)
    raised.add_note(trace)
    raise raised


def _work(connection: Connection, sent: bytes, seed: int) -> None:
    """Main loop of a worker: runs the repetitions it receives until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interruptions
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        job: Job | None = None
        while True:
            for index in connection.recv():
                try:
                    job = _loaded(sent) if job is None else job
                    connection.send((_run_one(job, index, seed), None, ""))
                except (BrokenPipeError, ConnectionResetError):
                    return
                except Exception as error:
                    connection.send((None, _portable(error), traceback.format_exc()))
                    return


def _loaded(sent: bytes) -> Job:
    try:
        job: Job = pickle.loads(sent)  # noqa: S301  (from our own parent process)
    except Exception as error:
        raise ValueError(
            f"a worker cannot import the job ({type(error).__name__}: {error}): it must be in a module on the path, "
            "or use one worker"
        ) from None
    return job


def _portable(error: Exception) -> bytes | str:
    try:
        sent = pickle.dumps(error)
        pickle.loads(sent)  # noqa: S301  (our own bytes: some exceptions can be pickled but not unpickled)
        return sent
    except Exception:
        return f"{type(error).__name__}: {error}"


def _revived(error: bytes | str) -> Exception:
    if isinstance(error, str):
        return RuntimeError(error)
    revived: Exception = pickle.loads(error)  # noqa: S301  (from our own worker)
    return revived


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Processes started in this context use one thread: libraries read these variables when they are loaded."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[BinaryIO]:
    """The file of results, readable by its owner only, and locked."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    file = open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")  # noqa: SIM115 - it is closed below, where its errors name it
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"{path}: in use by another process; wait for it or choose another folder") from None
        yield file
    finally:
        with naming(path):
            file.close()  # flushes the rest of a line


def _header(seed: int, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    text = json.dumps(dict(settings or {}), sort_keys=True)
    return {"repetitions": _VERSION, "seed": seed, "settings": hashlib.sha256(text.encode()).hexdigest()}


class _Store:
    """The file of results: a header, then one line for each repetition."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path, self._synced = file, path, time.monotonic()

    def read(self, header: dict[str, Any]) -> dict[int, str]:
        """The saved results, index → JSON text; writes the header if the file is empty."""
        complete, texts = 0, {}
        for number, line in enumerate(self._file):
            if not line.endswith(b"\n"):
                break
            row = self._row(line, number)
            if number == 0:
                self._check(row, header)
            else:
                try:
                    texts[validate.integer(index=row["index"])] = json.dumps(row["result"])
                except (KeyError, ValueError):
                    raise self._format_error(number) from None
            complete += len(line)
        self._file.seek(complete)
        self._file.truncate()
        if complete == 0:
            self._file.write(json.dumps(header).encode() + b"\n")
        self.sync()
        return texts

    def append(self, index: int, text: str) -> None:
        """Appends one result. It is flushed to the operating system at once, and synced to disk within a second."""
        with naming(self._path):
            self._file.write(f'{{"index": {index}, "result": {text}}}\n'.encode())
            self._file.flush()
        if time.monotonic() - self._synced > 1:
            self.sync()

    def sync(self) -> None:
        with naming(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def _row(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except ValueError:
            raise self._format_error(number) from None
        if not isinstance(row, dict):
            raise self._format_error(number)
        return row

    def _check(self, result: dict[str, Any], header: dict[str, Any]) -> None:
        if result.get("repetitions") != _VERSION:
            raise self._format_error(0)
        for name in ("seed", "settings"):
            if result.get(name) != header[name]:
                what = f"seed {result.get(name)}, not {header[name]}" if name == "seed" else "other settings"
                raise ValueError(f"{self._path}: holds repetitions of {what}; choose another folder, or delete it")

    def _format_error(self, number: int) -> ValueError:
        return ValueError(f"{self._path}: line {number + 1} is not a repetition of version {_VERSION}; delete the file")
