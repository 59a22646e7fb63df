"""Workers of `dask.distributed`: processes of this machine, or those of a scheduler at an address.

What travels between scheduler, workers and coordinator is `dask.distributed`'s business. Processes of this machine are
reached with keys that are made for them, so that other users of the machine cannot send them work; for a cluster, its
configuration sets TLS.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import platform
import threading
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, TypeVar

from dpassay.base import validate
from dpassay.base.errors import InputError, input_errors
from dpassay.base.extras import install
from dpassay.base.progress import Progress
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor, Pending
from dpassay.mechanisms.primitives.randomness import cores

CONNECT = 10.0
"""Seconds for a scheduler to answer."""

_START = 120.0  # seconds for processes of this machine to start
_FAILURES = 10  # workers that may die of the same piece of work
_UNINTERRUPTED = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
"""What a worker of this machine begins with: a terminal interrupts it, too, and it is this process that ends it."""

_USED = tuple(f"dpassay.{name}" for name in ("accounting", "attacks", "audits", "base", "claims", "data", "mechanisms"))
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

R = TypeVar("R")


def executor(workers: int | None, cluster: str | None, progress: Progress | None = None) -> Executor:
    """The executor that a user asked for.

    Args:
        workers: number of processes of this machine; None for this process.
        cluster: address of a scheduler, such as ``tcp://10.0.0.1:8786``; None for this machine.
        progress: where the address of the page is shown on which the work can be watched.

    Raises:
        InputError: if both are given, the extra is not installed, or nothing answers.
    """
    if cluster is not None:
        if workers is not None:
            raise InputError(
                "--workers is of this machine, and a cluster has workers of its own; leave one of them out"
            )
        client = connect(cluster)
        _check_code(client)
        result = Workers(client)
        if progress is not None:
            progress.note(f"{result.workers} workers of the cluster; watch them at {client.dashboard_link}")
        return result
    if workers is None:
        return THIS_PROCESS
    with input_errors("--workers: "):
        validate.integer(minimum=1, workers=workers)
    return Workers(local_client(workers))


def connect(address: str) -> Any:
    """A client of the scheduler at an address.

    Raises:
        InputError: if the extra is not installed, no scheduler answers, or it has no workers.
    """
    Client = _distributed("--cluster").Client
    try:
        client = Client(address, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"cluster {address}: no scheduler answers ({reason}); start one with `dask scheduler`"
        ) from None
    if not client.nthreads():
        client.close()
        raise InputError(f"cluster {address}: has no workers; start some with `dask worker {address}`")
    _send_at_once(client)
    return client


def local_client(workers: int) -> Any:
    """A client of new processes of this machine, which share its cores and end with it.

    Raises:
        InputError: if the extra is not installed, or they do not start.
    """
    distributed = _distributed("--workers")
    import dask

    threads = str(max(1, cores() // workers))
    settings = {
        "distributed.nanny.pre-spawn-environ": dict.fromkeys(_THREADS, threads),
        "distributed.scheduler.allowed-failures": _FAILURES,
        "distributed.worker.preload": [_UNINTERRUPTED],
        "distributed.scheduler.http.routes": [],  # a page that every user of the machine could read
        "distributed.worker.profile.enabled": False,  # it takes samples of a worker's stack each 10 ms
        "distributed.admin.tick.interval": "1s",
    }
    try:
        with dask.config.set(settings):
            cluster = distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                security=True,  # temporary keys
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
                memory_limit=0,
            )
            client = distributed.Client(cluster, timeout=_START, set_as_default=False)
            client.wait_for_workers(workers, timeout=_START)
    except (ImportError, OSError, RuntimeError, TimeoutError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"--workers: processes do not start ({reason}); {install('cluster')}; a script needs its work under "
            "`if __name__ == '__main__':`"
        ) from None
    _send_at_once(client)
    client.own_cluster = cluster
    return client


def _send_at_once(client: Any) -> None:
    """Sends a message less than 10 ms after the one before: a step of generation has one for each worker. A client that
    lost its scheduler and found it again waits as usual."""
    with contextlib.suppress(AttributeError):  # not a documented attribute
        client.scheduler_comm.interval = 0.0


def disconnect(client: Any, cancel: Collection[Any] = ()) -> None:
    """Closes a client, and the processes that were started for it. It takes seconds if the scheduler is gone.

    Args:
        client: of `connect` or `local_client`.
        cancel: futures of work that is ended before.
    """
    own = getattr(client, "own_cluster", None)

    def end() -> None:
        with contextlib.suppress(Exception):  # the scheduler may be gone
            if cancel:
                client.cancel(list(cancel), force=True)
            client.close(timeout=CONNECT)
        if own is not None:
            with contextlib.suppress(Exception):
                own.close(timeout=CONNECT)

    ending = threading.Thread(target=end, daemon=True)
    ending.start()
    ending.join(3 * CONNECT)


def _distributed(option: str) -> Any:
    try:
        import distributed
    except ImportError:
        raise InputError(f"{option} needs dask.distributed; {install('cluster')}") from None
    return distributed


def address_of_worker() -> str:
    """The address of the worker that does a piece of work."""
    from distributed import get_worker

    address: str = get_worker().address
    return address


def name_of_worker() -> str:
    """The name of this machine, for messages about it."""
    return platform.node()


class WorkerError(Exception):
    """A worker is not set up as this machine is, so that its results would be others. One line."""


class Workers(Executor):
    """The workers of a client of `dask.distributed`; each does one piece at a time."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._near: dict[str, str] = {}
        self._turn = 0
        self._lock = threading.Lock()

    @property
    def workers(self) -> int:
        return max(1, len(self._addresses()))

    def _addresses(self) -> list[str]:
        """Of the workers that there are now."""
        from distributed import CancelledError

        with reporting():
            try:
                return sorted(self._client.nthreads())
            except OSError:  # it does not answer
                raise CancelledError from None

    def submit(self, function: Callable[..., R], *arguments: Any, near: str = "") -> Pending[R]:
        options: dict[str, Any] = {}
        if near:  # a worker that is gone must not keep its pieces waiting
            options = {"workers": [self._place(near)], "allow_other_workers": True}
        from distributed.protocol import pickle

        # Bytes: a worker that cannot read its arguments ends, and the work would wait for ever.
        try:
            sent = pickle.dumps((function, arguments))
        except Exception as error:
            raise InputError(
                f"a piece of work cannot be sent to another process ({type(error).__name__}: {error}); use this "
                "process, or functions at the top level of a module"
            ) from None
        with warnings.catch_warnings(), reporting():
            warnings.filterwarnings("ignore", message="Sending large graph")
            future = self._client.submit(_done, sent, pure=False, **options)
        return _Piece(future, self._near, near)

    def first(self, pieces: Collection[Pending[R]]) -> Pending[R]:
        from distributed import wait

        of_future = {piece._future: piece for piece in pieces if isinstance(piece, _Piece)}
        with reporting(), self._client.as_current():
            done = wait(list(of_future), return_when="FIRST_COMPLETED").done
        return of_future[next(iter(done))]

    def _place(self, near: str) -> str:
        """The worker that keeps what a piece needs; a name that is new gets the next one in turn."""
        with self._lock:
            known = self._near.get(near)
            addresses = self._addresses()
            if near in addresses:
                return near
            if known not in addresses and addresses:
                known = self._near[near] = addresses[self._turn % len(addresses)]
                self._turn += 1
            return known or ""

    def close(self) -> None:
        disconnect(self._client)


class _Piece:
    """A piece that a worker does; it remembers which one did it."""

    def __init__(self, future: Any, places: dict[str, str], near: str) -> None:
        self._future, self._places, self._near = future, places, near

    def result(self) -> Any:
        with reporting():
            worker, value, error = self._future.result()
            if self._near:
                self._places[self._near] = worker
            if error is not None:
                raise error
        return value


def _done(sent: bytes) -> tuple[str, Any, Exception | None]:
    """A piece on a worker: the address of the worker, and what the piece returned or raised.

    An error is returned, since dask writes the beginning of the arguments of what raises one to the worker's log, and
    they may be private.
    """
    from distributed.protocol import pickle

    address = address_of_worker()
    try:
        function, arguments = pickle.loads(sent)
    except Exception as error:
        reason = f"cannot import what it is sent ({type(error).__name__}: {error})"
        instead = "a function must be in a module that is installed there"
        return address, None, WorkerError(f"worker {address}: {reason}; {instead}")
    try:
        return address, function(*arguments), None
    except Exception as error:
        return address, None, _sendable(error)


def _sendable(error: Exception) -> Exception:
    """An error as it can be sent, with the lines of code where it was raised."""
    from distributed.protocol import pickle

    error.add_note("on a worker:\n" + "".join(traceback.format_tb(error.__traceback__)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        told = RuntimeError(f"{type(error).__name__}: {error}")
        for note in error.__notes__:
            told.add_note(note)
        return told
    return error


def _check_code(client: Any) -> None:
    """Checks that all workers run this code.

    Raises:
        InputError: one line, which names the first that does not.
    """
    what = "install the same on all machines"
    here = metadata.version("dpassay")
    for address, version in sorted(client.run(metadata.version, "dpassay", on_error="return").items()):
        if version != here:
            known = f"dpassay {version}" if isinstance(version, str) else "no dpassay"
            raise InputError(f"worker {address}: has {known}, and this machine {here}; {what}")
    digest = code_digest()
    for address, other in sorted(client.run(code_digest, on_error="return").items()):
        if other != digest:
            raise InputError(f"worker {address}: has another dpassay {here} than this machine; {what}")


def code_digest() -> str:
    """SHA-256 of the source files of dpassay that pieces of work use."""
    result = hashlib.sha256()
    for package in _USED:
        folder = Path(next(iter(import_module(package).__path__)))
        for file in sorted(folder.rglob("*.py")):
            result.update(f"{package} {file.relative_to(folder).as_posix()}\0".encode())
            result.update(hashlib.sha256(file.read_bytes()).digest())
    return result.hexdigest()


@contextlib.contextmanager
def reporting(lost: str = "nothing was released for it") -> Iterator[None]:
    """Raises an `InputError` where workers or the scheduler are at fault.

    Args:
        lost: what became of the work that was under way.
    """
    from distributed import CancelledError, KilledWorker

    try:
        yield
    except WorkerError as error:
        raise InputError(str(error)) from None
    except KilledWorker:
        raise InputError(
            f"the workers of a piece of work died, one after another; {lost}. Look at their logs, give them more "
            "memory, and call again to resume"
        ) from None
    except CancelledError:
        raise InputError(
            f"the scheduler of the cluster is gone while work was under way; {lost}. Start one, and call again to "
            "resume"
        ) from None
