"""Runs the command of an audited generator, each time in an empty folder of its own, here or on a cluster."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
import shlex
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from dpassay.attacks.black_box.column_facts import Row
from dpassay.auditing.many_runs.cluster import Cluster
from dpassay.auditing.many_runs.execution import LOG, execute, placed
from dpassay.auditing.many_runs.files import PlannedRuns
from dpassay.auditing.many_runs.results import MadeRun
from dpassay.base.errors import InputError
from dpassay.base.private_files import write_private
from dpassay.data.reader import FileOptions
from dpassay.data.records import read_rows, written_as

T = TypeVar("T")

WORK, OUTPUTS = "work", "outputs"
"""Folders of runs under way, and of outputs that are kept."""

_LOG = 1 << 16  # bytes that are kept of the messages of a failed run
_KEPT_LOGS = 20


def seed_of(seed: int, index: int) -> int:
    """A seed of 63 bits that belongs to one run."""
    return int(np.random.SeedSequence(seed, spawn_key=(index,)).generate_state(1, np.uint64)[0] >> 1)


def words_of(command: str) -> list[str]:
    """The words of a command, as a shell has them.

    Raises:
        InputError: if there are none.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"the command {command!r} cannot be split into words: {str(error).lower()}") from None
    if not words:
        raise InputError("the command is empty; write it as in python gen.py {input} {output}")
    return words


class Logs:
    """Keeps what failed runs printed, which may show records, in the private folder: the end of the first few.

    Args:
        folder: for the files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._kept = 0

    def file(self, made: MadeRun) -> Path:
        """The file of a run."""
        return self._folder / f"{made.name}.txt"

    def keep(self, log: Path, made: MadeRun) -> None:
        """Keeps the end of a file that a failed run wrote."""
        with self._lock:
            self._kept += 1
            if self._kept > _KEPT_LOGS or not log.is_file():
                return
        self._folder.mkdir(mode=0o700, exist_ok=True)
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG))
            write_private(self.file(made), file.read())


class Unreadable(Exception):
    """An output that is missing or malformed."""


def rows_of(planned: PlannedRuns, path: str) -> Iterator[Row]:
    """The rows of an output, one by one.

    Raises:
        Unreadable: if there is none, it is malformed, or it has no column of the data.
    """
    problem = ""
    for stated in planned.readings_of(Path(path)):
        begun = False
        try:
            for _, row in read_rows(path, stated=stated):
                if not begun and not planned.plan.names & row.keys():
                    problem = problem or _no_column(planned, path, stated, len(row))
                    break
                begun = True
                yield row
            else:
                return
        except ValueError as error:
            problem = problem or str(error).removeprefix(path).partition(": ")[2]
            if begun:
                break
    raise Unreadable(problem)


def _no_column(planned: PlannedRuns, path: str, stated: FileOptions, columns: int) -> str:
    """What an output was read as that has no column of the data."""
    read = "one column" if columns == 1 else f"{columns} columns"
    return (
        f"it is read as {read} ({written_as(path, stated)}), of which the data, with {len(planned.plan.names)}, have "
        "none; name them as in the data, in a first line, and separate them by commas, semicolons, tabs or bars"
    )


class Commands:
    """Runs commands, each in an empty folder of its own, on its own copy of a data set.

    Args:
        planned: the plan.
        timeout: of a run, in seconds.
        logs: keep what failed runs print.
        cluster: whose workers run them; None for this machine.
    """

    def __init__(self, planned: PlannedRuns, timeout: float, logs: Logs, cluster: Cluster | None = None) -> None:
        self._planned, self._timeout, self._logs, self._cluster = planned, timeout, logs, cluster
        self._content = functools.cache(planned.content)  # of ladders
        self._files = functools.cache(lambda command: files_of(absolute(words_of(command))))
        self._stopped = False

    def run(
        self,
        command: str,
        made: MadeRun,
        use: Callable[[Iterable[Row]], T],
        *,
        keep: bool,
        write: Callable[[Path], None] | None = None,
    ) -> T | str:
        """What becomes of the output of a run; or why there is none. `write` writes the input, if it is not planned."""
        with self._folder(made, write) as (work, given):
            output = given.with_name(f"output{given.suffix}")
            reason = self._execute(command, made, work, given)
            if not reason:
                try:
                    result = use(rows_of(self._planned, str(output)))
                except Unreadable as error:
                    reason = f"its output cannot be read: {error}"
                else:
                    if keep:
                        kept = self._planned.private / OUTPUTS
                        kept.mkdir(mode=0o700, exist_ok=True)
                        shutil.move(output, kept / f"{made.name}{given.suffix}")
                    return result
            if not self._stopped:
                self._logs.keep(work / LOG, made)
            return reason

    def try_each(self, command: str, made: MadeRun) -> None:
        """Runs a command once on each worker of the cluster, and forgets the outputs.

        Raises:
            InputError: if one fails, since its failures would be counted as the generator's.
        """
        if self._cluster is None:
            return
        with self._folder(made, None) as (work, given):
            words = self._words(command, made)
            replies = self._cluster.try_each(
                words, self._files(command), given.read_bytes(), given.suffix, self._timeout
            )
            for address, reply in replies.items():
                if reply.reason:
                    (work / LOG).write_bytes(reply.log)
                    self._logs.keep(work / LOG, made)
                    raise InputError(
                        f"the command fails on the worker {address} ({reply.reason}), and not on all of them; its "
                        f"messages are in {self._logs.file(made)}"
                    )

    @contextlib.contextmanager
    def _folder(self, made: MadeRun, write: Callable[[Path], None] | None) -> Iterator[tuple[Path, Path]]:
        """A new folder, and the input of a run in it."""
        # No earlier command writes here, such as one whose audit was killed. The path tells nothing about the data.
        work = (self._planned.private / WORK / secrets.token_hex(8)).resolve()
        work.mkdir(mode=0o700, parents=True)
        try:
            given = work / f"input{self._planned.plan.suffix}"
            (write or functools.partial(self._write, made.run.data))(given)
            yield work, given
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _words(self, command: str, made: MadeRun) -> list[str]:
        seed = str(seed_of(self._planned.plan.seed, made.spawn_key) % 2**32)
        return [word.replace("{seed}", seed) for word in absolute(words_of(command))]

    def _write(self, data: int, path: Path) -> None:
        """Writes a data set of the plan or of a ladder."""
        if data < len(self._planned.plan.data_sets):
            self._planned.copy(data, path)
        else:
            path.write_bytes(self._content(data))

    def _execute(self, command: str, made: MadeRun, work: Path, given: Path) -> str:
        """Runs a command; returns why it failed, or nothing."""
        words, output = self._words(command, made), given.with_name(f"output{given.suffix}")
        if self._cluster is None:
            try:
                return execute(placed(words, given, output), work, self._timeout, lambda: not self._stopped)
            except OSError as error:
                raise InputError(f"{words[0]}: cannot be run: {(error.strerror or str(error)).lower()}") from None
        reply = self._cluster.run(words, self._files(command), given.read_bytes(), given.suffix, self._timeout)
        if reply.output is not None:
            output.write_bytes(reply.output)
        (work / LOG).write_bytes(reply.log)
        return reply.reason

    def stop(self) -> None:
        """Ends all commands that are running, and begins no more."""
        self._stopped = True
        if self._cluster is not None:
            self._cluster.stop()


def files_of(words: Sequence[str]) -> dict[str, str]:
    """The files that the words of a command name, with the SHA-256 of each; no program that is searched for on the
    path."""
    paths = [Path(word.rpartition("=")[2]) for index, word in enumerate(words) if index or os.sep in word]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()}


def absolute(words: Sequence[str]) -> list[str]:
    """Words that name a file here, as absolute paths, since the command runs in a folder of its own."""
    results = []
    for index, word in enumerate(words):
        named = os.sep in word or (index > 0 and bool(os.path.splitext(word)[1]))  # not the 1 of `--epsilon 1`
        here = named and os.path.exists(word) and not word.startswith("-")
        results.append(os.path.abspath(word) if here else word)
    return results
