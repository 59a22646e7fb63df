"""Runs commands on the workers of a cluster (`dask.distributed`), each in an empty folder of its own.

The coordinator keeps plan, results and decisions. A worker gets the words of a command and one data set, and returns
the output, or why there is none. A run whose worker dies was not counted, and is made again on another one, which says
nothing of the generator: a command runs in a process of its own, so that it cannot end its worker.

What travels between scheduler, workers and coordinator is `dask.distributed`'s business; its configuration sets TLS.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpassay.auditing.many_runs.execution import LOG, execute, placed
from dpassay.base.errors import InputError
from dpassay.mechanisms.compute.workers import WorkerError, connect, disconnect, reporting

_LOG = 1 << 16  # bytes of the messages of a failed run
_LOST = "no result was counted for it"
_LOOK = 1.0  # seconds between looks at whether all runs were ended


@dataclass(frozen=True, slots=True)
class Reply:
    """What a worker returns of a run.

    Attributes:
        reason: why there is no output; empty if there is one.
        output: content of the file, None if there is none.
        log: the end of what was printed, if the run failed.
    """

    reason: str
    output: bytes | None = None
    log: bytes = b""


class Cluster:
    """The workers of a scheduler.

    Args:
        address: such as ``tcp://10.0.0.1:8786``.

    Raises:
        InputError: if the extra is not installed, no scheduler answers, or it has no workers.
    """

    def __init__(self, address: str) -> None:
        self._client = connect(address)
        self._futures: set[Any] = set()
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    @property
    def workers(self) -> int:
        """How many runs its workers make at a time."""
        return sum(self._client.nthreads().values())

    @property
    def dashboard(self) -> str:
        """The address of the page on which its work can be watched."""
        return str(self._client.dashboard_link)

    def try_each(
        self, words: Sequence[str], files: Mapping[str, str], content: bytes, suffix: str, timeout: float
    ) -> dict[str, Reply]:
        """One run on each worker, by its address.

        Raises:
            InputError: as for `run`.
        """
        addresses = list(self._client.nthreads())
        futures = [
            self._client.submit(
                made_on_worker,
                words,
                files,
                content,
                suffix,
                timeout,
                workers=[address],
                allow_other_workers=True,  # one that dies meanwhile would keep its run waiting for ever
                pure=False,
            )
            for address in addresses
        ]
        with reporting(_LOST):
            return dict(zip(addresses, self._client.gather(futures), strict=True))

    def run(self, words: Sequence[str], files: Mapping[str, str], content: bytes, suffix: str, timeout: float) -> Reply:
        """A run on any worker.

        Args:
            words: of the command, with ``{input}`` and ``{output}``.
            files: paths that it names, as they are on every worker, and the SHA-256 of each.
            content: of the input.
            suffix: of input and output.
            timeout: in seconds.

        Raises:
            InputError: if a worker lacks a file of the command or has another one, workers die again and again, or the
                scheduler is gone.
        """
        with self._lock:
            if self._stopped.is_set():
                return Reply("interrupted")
            future = self._client.submit(made_on_worker, words, files, content, suffix, timeout, pure=False)
            self._futures.add(future)
        done = threading.Event()  # a time-out of `Future.result` may raise a NameError of the library
        future.add_done_callback(lambda _: done.set())
        try:
            while not self._stopped.is_set():
                if done.wait(_LOOK):
                    with reporting(_LOST):
                        reply: Reply = future.result()
                        return reply
        except InputError:
            if not self._stopped.is_set():
                raise
        finally:
            with self._lock:
                self._futures.discard(future)
        return Reply("interrupted")

    def stop(self) -> None:
        """Ends all runs that are under way, and begins no more."""
        with self._lock:
            self._stopped.set()
            futures = list(self._futures)
        disconnect(self._client, futures)


def made_on_worker(
    words: Sequence[str], files: Mapping[str, str], content: bytes, suffix: str, timeout: float
) -> Reply:
    """A run on a worker, as for `Cluster.run`."""
    from distributed import get_worker

    _check(words, files)
    worker = get_worker()
    key = worker.get_current_task()

    def wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state != "cancelled"

    with tempfile.TemporaryDirectory() as folder:
        return made_in(Path(folder), words, content, suffix, timeout, wanted)


def _check(words: Sequence[str], files: Mapping[str, str]) -> None:
    here = os.uname().nodename
    if shutil.which(words[0]) is None:
        raise WorkerError(
            f"worker on {here}: has no program {words[0]!r}; install it there, or name it by its path there"
        )
    for name, digest in files.items():
        path = Path(name)
        if not path.is_file():
            raise WorkerError(f"worker on {here}: has no file {name}; put it at the same path on every machine")
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise WorkerError(f"worker on {here}: has another file {name} than this machine; copy it there")


def made_in(
    folder: Path, words: Sequence[str], content: bytes, suffix: str, timeout: float, wanted: Callable[[], bool]
) -> Reply:
    """A run in an empty folder, which ends when it is no longer wanted."""
    given, made = folder / f"input{suffix}", folder / f"output{suffix}"
    given.write_bytes(content)
    try:
        reason = execute(placed(words, given, made), folder, timeout, wanted)
    except OSError as error:
        raise WorkerError(f"{words[0]}: cannot be run: {(error.strerror or str(error)).lower()}") from None
    log = (folder / LOG).read_bytes()[-_LOG:] if reason else b""
    return Reply(reason, made.read_bytes() if not reason and made.is_file() else None, log)
