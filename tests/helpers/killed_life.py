"""The life of a run, `dpassay generate`, `assay` and `release`, in processes that a test kills or lets fail.

`Lives` starts a process that loads the libraries once and forks a child for each life. A child may kill itself before
or after any of its calls that make something durable or visible, or half-way through a write; or it is killed after
some time. Every kill is a SIGKILL. In place of being killed, a call may fail as it does on a full disk, or files may
not grow beyond a size. A life that was killed or failed is resumed by the next life in the same folder.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import json
import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TextIO

import numpy as np
from command import plain

from dpassay.base.errors import naming

COMMANDS: dict[str, list[str]] = {
    "generate": ["generate", "claim.yaml", "-o", "run", "--json", "-q"],
    "assay": ["assay", "claim.yaml", "-o", "run", "--json", "-q"],
    "release": ["release", "run", "-o", "out", "--json", "-q"],
}

_CALLS = {"replace": 1, "rename": 1, "link": 1, "mkdir": 0, "rmdir": 0, "chmod": 0}
"""The functions of `os` where a child may die → the place of the path that they make or change."""

_PASSING = [
    (r"\.\d+-[0-9a-f]{8}\.partial", ".partial"),
    (r"\.out\.[0-9a-f]{8}\.partial", ".out.partial"),
    (r"\.ledger\.sqlite\.\w{8}\.new", ".ledger.sqlite.new"),
    (r"[0-9a-f]{64}\.json(\.partial)?", "anchor"),
]
"""What differs between the names of two runs."""


_JOB: dict[str, Any] = {
    "deadly": None,
    "spared": [],
    "seconds": None,
    "warm": False,
    "full": False,
    "size": None,
    "still": False,
    "processes": 1,
}


class Point(NamedTuple):
    """Where a child kills itself.

    Attributes:
        call: the command and the call, such as ``generate: replace run/private/synthetic.jsonl``.
        side: ``before`` or ``after`` it, or ``half`` of it, for what is written.
    """

    call: str
    side: str


@dataclass(frozen=True)
class Ended:
    """How a life ended.

    Attributes:
        code: of the first command that failed; 0 for none, −9 for a kill.
        errors: what was printed to the standard error.
        seconds: that it took.
        last: the last point that it came to, where it died if it killed itself.
    """

    code: int
    errors: str
    seconds: float
    last: Point | None


class Lives:
    """Lives of runs in children of one process, which is warm after the first life. A context manager."""

    def __init__(self) -> None:
        here = Path(__file__)
        paths = os.pathsep.join(filter(None, [str(here.parent), os.environ.get("PYTHONPATH")]))
        alone = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": paths}
        self._server = subprocess.Popen(
            [sys.executable, str(here)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | alone,
            cwd=here.parent,
        )

    def live(
        self,
        folder: Path,
        *,
        deadly: str | None = None,
        spared: Iterable[Point] = (),
        commands: Sequence[str] = tuple(COMMANDS),
        seconds: float | None = None,
        warm: bool = False,
        full: bool = False,
        size: int | None = None,
        still: bool = False,
    ) -> Ended:
        """Runs the commands in a folder that holds a claim, each after the other, or resumes them.

        Args:
            folder: also of what is printed, and of the anchor.
            deadly: the child kills itself at the first point, call and side, in which this pattern is found,
            spared: other than these.
            commands: their names.
            seconds: after which it is killed.
            warm: run in the process itself, which has loaded everything then.
            full: at the deadly point the call fails as on a full disk, in place of a kill.
            size: in bytes; no file grows beyond it.
            still: `dpassay assay` draws without noise (`Still`).
        """
        (ended,) = self._lived(
            folder,
            deadly=deadly,
            spared=list(spared),
            commands=list(commands),
            seconds=seconds,
            warm=warm,
            full=full,
            size=size,
            still=still,
        )
        return ended

    def race(self, folder: Path, processes: int, command: str) -> list[Ended]:
        """Runs one command in several children that start at once."""
        return self._lived(folder, commands=[command], processes=processes)

    def _lived(self, folder: Path, **job: Any) -> list[Ended]:
        printed = f"printed-{len(list(folder.glob('printed-*')))}"
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(_JOB | job | {"folder": str(folder), "printed": printed}) + "\n")
        self._server.stdin.flush()
        answer = json.loads(self._server.stdout.readline())
        notes = folder / "points"  # which a life that is killed at once has not begun
        passed = notes.read_text().splitlines() if notes.exists() else []
        last = Point(*json.loads(passed[-1])) if passed else None
        errors = [folder / f"errors-{index}" for index in range(len(answer["codes"]))]
        return [
            Ended(code, plain(path.read_text()) if path.exists() else "", answer["seconds"], last)
            for code, path in zip(answer["codes"], errors, strict=True)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()


class _Watched:
    """Notes every call where the process may die, and kills it, or lets it fail, at the first that is deadly and not
    spared."""

    def __init__(self, folder: Path, deadly: str | None, spared: Iterable[Point], full: bool) -> None:
        self.command = ""
        self._folder, self._deadly, self._spared, self._full = folder, deadly, frozenset(spared), full
        self._note, self._failed = os.write, False
        self._notes = os.open(folder / "points", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC, 0o600)

    def at(self, call: str, side: str) -> bool:
        """Whether to die here. After a call that failed, none is noted: a disk stays full."""
        point = Point(f"{self.command}: {call}", side)
        if not self._failed:
            self._note(self._notes, f"{json.dumps(point)}\n".encode())
        return self._deadly is not None and point not in self._spared and bool(re.search(self._deadly, " ".join(point)))

    def pass_by(self, call: str, side: str) -> None:
        """Dies here, if that is deadly."""
        if self.at(call, side):
            self.die(call)

    def die(self, call: str) -> None:
        """Kills the process, or fails as the operating system and SQLite do where the disk is full."""
        if not self._full:
            os.kill(os.getpid(), signal.SIGKILL)
        self._failed = True
        if call.startswith("COMMIT"):
            raise sqlite3.OperationalError("database or disk is full")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @contextlib.contextmanager
    def around(self, call: str) -> Iterator[None]:
        """What may die before and after."""
        self.pass_by(call, "before")
        yield
        self.pass_by(call, "after")

    def name(self, path: Any) -> str | None:
        """A path of the run as it is called in all runs; None for others."""
        try:
            text = str(Path(os.fspath(path)).absolute().relative_to(self._folder))
        except (TypeError, ValueError):
            return None
        for passing, name in _PASSING:
            text = re.sub(passing, name, text)
        return text

    def watch(self) -> None:
        """Puts itself around the calls of this process."""
        for name, index in _CALLS.items():
            setattr(os, name, self._os_call(name, getattr(os, name), index))
        self._watch_files()
        self._watch_ledger()
        if self._full:
            self._watch_descriptors()
        else:
            self._watch_journal()

    def _os_call(self, verb: str, call: Callable[..., Any], index: int) -> Callable[..., Any]:
        @functools.wraps(call)
        def watched(*arguments: Any, **options: Any) -> Any:
            name = self.name(arguments[index])
            if name is None:
                return call(*arguments, **options)
            with naming(arguments[index]):
                self.pass_by(f"{verb} {name}", "before")
            made = call(*arguments, **options)
            self.pass_by(f"{verb} {name}", "after")
            return made

        return watched

    def _watch_files(self) -> None:
        """Files that are written whole: half of one is on the disk when the process dies."""
        fsync = os.fsync

        def watched(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            name = self.name(path)
            whole = path.endswith(".partial") and os.path.isfile(path)
            if name is not None and whole and self.at(f"write {name}", "half"):
                os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
                self.die("write")
            fsync(descriptor)

        os.fsync = watched  # type: ignore[assignment]

    def _watch_ledger(self) -> None:
        from dpassay.accounting.ledger.store import Store

        append, transaction, added = Store.append, Store.transaction, list[str]()

        def watched_append(store: Store, run: str, kind: str, body: dict[str, Any]) -> None:
            append(store, run, kind, body)
            added.append(f"{kind} {body['key']}" if "key" in body else kind)

        @contextlib.contextmanager
        def watched_transaction(store: Store) -> Iterator[None]:
            added.clear()
            with transaction(store):
                yield
                call = f"COMMIT {added[0]} in {self.name(store.path)}" if added else None
                if call:
                    self.pass_by(call, "before")
            if call:
                self.pass_by(call, "after")

        Store.append, Store.transaction = watched_append, watched_transaction  # type: ignore[assignment, method-assign]

    def _watch_journal(self) -> None:
        from dpassay.mechanisms.evolution.journal import Journal

        write = Journal._write

        def watched(journal: Journal, text: str) -> None:
            line = json.loads(text)
            call = f"journal {line.get('label')} {line.get('key', 'head')}"
            with self.around(call):
                if self.at(call, "half"):
                    write(journal, text[: len(text) // 2])
                    self.die("write")
                write(journal, text)

        Journal._write = watched  # type: ignore[assignment, method-assign]

    def _watch_descriptors(self) -> None:
        """Writes to open files, and waits for the disk, in the order in which they come."""
        counts = dict.fromkeys(("write", "fsync"), 0)

        def watch(verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def watched(*arguments: Any) -> Any:
                counts[verb] += 1
                self.pass_by(f"os.{verb} {counts[verb]}", "before")
                return call(*arguments)

            return watched

        for verb in counts:
            setattr(os, verb, watch(verb, getattr(os, verb)))


class Still:
    """A source of randomness that draws the first outcome, and noise of 0, whatever it drew before."""

    name = "recorded"

    def at(self, place: str) -> Any:
        return self

    def below(self, bound: int) -> int:
        return 0

    def discrete_laplace(self, size: int, scale: float) -> Any:
        return np.zeros(size, dtype=np.int64)

    def discrete_gaussian(self, size: int, scale: float) -> Any:
        return np.zeros(size, dtype=np.int64)

    def add_gaussian(self, values: Any, scale: float) -> Any:
        return np.array(values, dtype=np.float64)

    def rounded_normals(self, size: int, bits: int) -> Any:
        return np.zeros(size, dtype=np.int64)

    def bernoulli(self, probabilities: Any) -> Any:
        return np.asarray(probabilities) >= 0.5


def _live(job: dict[str, Any]) -> int:
    """All commands of a life; the exit code of the first that fails."""
    folder = Path(job["folder"])
    os.chdir(folder)
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    if job["still"]:
        from dpassay.generators.base import RunSettings

        RunSettings.__init__.__kwdefaults__["source"] = Still()  # type: ignore[index]
    watched = _Watched(folder, job["deadly"], (Point(*point) for point in job["spared"]), job["full"])
    if not job["warm"] and job["size"] is None:
        watched.watch()
    names = (f"{job['printed']}-{job['place']}", f"errors-{job['place']}")
    if job["size"] is None:
        with open(names[0], "w", buffering=1) as printed, open(names[1], "w", buffering=1) as errors:
            return _commands(job["commands"], watched, printed, errors)
    texts = io.StringIO(), io.StringIO()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    sys.dont_write_bytecode = True  # Python 3.11 keeps a cut-off file of bytecode, which later processes stumble over
    resource.setrlimit(resource.RLIMIT_FSIZE, (job["size"], limits[1]))
    try:
        return _commands(job["commands"], watched, *texts)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        for name, text in zip(names, texts, strict=True):
            Path(name).write_text(text.getvalue())


def _commands(names: Sequence[str], watched: _Watched, printed: TextIO, errors: TextIO) -> int:
    from dpassay.cli.app import run_command

    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        for name in names:
            watched.command = name
            if name == "release" and Path("out").exists():  # it was made; another one needs another name
                continue
            if code := int(run_command(COMMANDS[name])):
                return code
    return 0


def _children(job: dict[str, Any]) -> list[int]:
    """The exit codes of lives in processes of their own, which start at once; −9 for one that was killed."""
    sys.stdout.flush()
    waiting, starting = os.pipe()
    children = []
    for index in range(job["processes"]):
        child = os.fork()
        if child == 0:
            code = 70
            try:
                os.close(starting)
                os.read(waiting, 1)  # until nobody can write
                code = _live(job | {"place": index})
            finally:
                os._exit(code)
        children.append(child)
    os.close(starting)
    os.close(waiting)
    return [_ended(child, job) for child in children]


def _ended(child: int, job: dict[str, Any]) -> int:
    end = None if job["seconds"] is None else time.monotonic() + job["seconds"]
    result, status = os.waitpid(child, 0 if end is None else os.WNOHANG)
    while not result:
        if end is not None and time.monotonic() >= end:
            os.kill(child, signal.SIGKILL)
            end = None
        time.sleep(0.001)
        result, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status)


def _serve() -> None:
    """A line with a job in, a line with how it ended out."""
    from marginal_tables import Pretended

    from dpassay.mechanisms.marginals import generator as marginals
    from dpassay.mechanisms.models.language_model import LanguageModel

    LanguageModel.load = functools.cache(LanguageModel.load)  # type: ignore[method-assign]
    # Threads of OpenDP's libraries end with a fork, so its release is pretended.
    vars(marginals).update(TableQuery=Pretended, check_libraries=lambda: None)
    for line in sys.stdin:
        job = json.loads(line)
        started = time.monotonic()
        codes = [_live(job | {"place": 0})] if job["warm"] else _children(job)
        print(json.dumps({"codes": codes, "seconds": time.monotonic() - started}), flush=True)


if __name__ == "__main__":
    _serve()
