"""Independent repetitions of a job, over several processes or machines, and resumable."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from dpassay.base import validate
from dpassay.base.errors import naming
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor, Pending

Job: TypeAlias = Callable[[int, np.random.SeedSequence], Any]
Step: TypeAlias = Callable[[int, int], None]

FILE = "repetitions.jsonl"
_VERSION = 1
_MAX_PIECE = 64  # repetitions that a worker is sent at once
_SECONDS = 1.0  # after which it returns those that it has
_AHEAD = 2  # pieces of each worker that are under way at a time


def repeat(
    job: Job,
    count: int,
    *,
    seed: int,
    executor: Executor = THIS_PROCESS,
    folder: Path | str | None = None,
    progress: Step | None = None,
    settings: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Runs `job(index, seed)` for index 0, …, count − 1.

    Repetition i receives ``SeedSequence(seed, spawn_key=(i,))``, so its result does not depend on the number of
    workers, the order, or interruptions. (Sums of floats over another number of threads may differ in the last bits;
    processes of one machine share its cores.) Repetitions whose worker dies are run again.

    Args:
        job: returns a JSON value; a tuple is returned as a list. Workers of a cluster must be able to import its
            modules.
        count: number of repetitions.
        seed: a whole number of at least 0.
        executor: where they run; this process by default.
        folder: where results are saved as they arrive, in `repetitions.jsonl`. Saved repetitions are not run again;
            `count` may have increased since. An incomplete last line is dropped.
        progress: called with the number of finished repetitions and `count`.
        settings: JSON values that identify the job. Their hash is saved, and a folder with results of other settings is
            refused; include everything that results depend on.

    Returns:
        The results in order of their index.

    Raises:
        ValueError: if the folder has results of other settings or another seed, the job cannot be sent to a worker, or
            workers die again and again.
        Exception: raised by a job, with a note that names the repetition. Finished results are kept.
    """
    validate.integer(count=count)
    validate.integer(seed=seed)
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
        run = _in_process(job, missing, seed) if executor is THIS_PROCESS else _in_pieces(job, missing, seed, executor)
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


def _in_pieces(job: Job, indices: deque[int], seed: int, executor: Executor) -> Results:
    """Results as they arrive. Workers receive few repetitions at a time, fewer towards the end."""
    under_way: dict[Pending[list[str]], list[int]] = {}
    while indices or under_way:
        workers = executor.workers
        while indices and len(under_way) < _AHEAD * workers:
            size = max(1, min(_MAX_PIECE, len(indices) // (4 * workers)))
            piece = [indices.popleft() for _ in range(size)]
            under_way[executor.submit(_some, job, piece, seed)] = piece
        first = executor.first(under_way)
        piece = under_way.pop(first)
        texts = first.result()
        indices.extendleft(reversed(piece[len(texts) :]))
        yield from zip(piece, texts, strict=False)


def _some(job: Job, indices: Sequence[int], seed: int) -> list[str]:
    """The results of the first of these repetitions, in a worker: as many as are done in a short time, at least one."""
    texts: list[str] = []
    end = time.monotonic() + _SECONDS
    for index in indices:
        try:
            texts.append(_run_one(job, index, seed))
        except Exception:
            if texts:  # they are kept; the one that fails comes again, at the head of a piece
                break
            raise
        if time.monotonic() > end:
            break
    return texts


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
