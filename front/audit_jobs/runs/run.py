"""Makes the runs of a planned audit: by a command, by a Python function, or elsewhere, where only files cross."""

from __future__ import annotations

import contextlib
import copy
import csv
import functools
import importlib
import io
import multiprocessing
import os
import queue
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np

from cupel.accounting import validate
from cupel.accounting.adjacency import Adjacency, Unit
from cupel.accounting.guarantees import ApproxDP, PureDP
from cupel.attacks.black_box.output_features import Features, OutputFeatures, failed
from cupel.attacks.black_box.worst_cases import Row, Sample, data_sets_of, describe_columns, neighboring_data
from cupel.audit_jobs.canaries.files import write_whole
from cupel.audit_jobs.runs.files import BOUND, TRIAL, MadeRun, Planned, Results, read_plan
from cupel.audits.games.many_runs import ManyRuns, ManyRunsDesign, Pair, Run
from cupel.audits.result import AuditResult
from cupel.errors import InputError, input_errors
from cupel.io.run_files import one_process
from cupel.mechanisms.data.records import read_rows
from cupel.progress import Progress

Function: TypeAlias = Callable[[list[dict[str, Any]], int], Iterable[Any]]
"""A generator: (records, seed) → synthetic records, or texts."""

TIMEOUT = 3600.0
"""Seconds after which a run is stopped. It then counts as failed."""

_AHEAD = 16  # rounds that are asked for at once where runs are made elsewhere
_LOG = 1 << 16  # bytes that are kept of the messages of a failed run
_KEPT_LOGS = 20
_TODO, _OUTPUTS, _FAILURES, _WORK = "todo.csv", "outputs", "failures", "work"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How runs are made.

    Attributes:
        command: with the placeholders ``{input}`` and ``{output}``, and ``{seed}`` where the generator takes one. It is
            split as a shell does, and run without a shell, in an empty folder.
        function: ``module:function`` instead, called with the records and a seed; returns synthetic records.
        unprotected: the same command or function with its protection off: the positive control.
        workers: number of runs at a time.
        timeout: of a command, in seconds. A function is not stopped.
        stop: whether to stop as soon as the claim is refuted.
        keep: whether outputs are kept in ``private/outputs/``.
        progress: where to show progress.
    """

    command: str | None = None
    function: str | None = None
    unprotected: str | None = None
    workers: int = 1
    timeout: float = TIMEOUT
    stop: bool = True
    keep: bool = False
    progress: Progress = field(default_factory=Progress)


@dataclass(frozen=True)
class MadeRuns:
    """How far an audit is.

    Attributes:
        made: number of runs with a result, those of the unprotected generator included.
        reason: why the audit of the claimed generator needs no more runs; empty if it does.
        wanted: the runs that are needed next; empty if the audit is finished.
    """

    made: int
    reason: str
    wanted: tuple[MadeRun, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The state as plain JSON types."""
        wanted = [run.name for run in self.wanted]
        return {"runs": self.made, "wanted": wanted, "finished": not wanted, "reason": self.reason}


def run(folder: Path, settings: RunSettings) -> MadeRuns:
    """Makes the runs of a plan until the audit is finished; resumes what was interrupted.

    Args:
        folder: of the plan.
        settings: how runs are made.

    Raises:
        InputError: one line, if the plan, the command or its first run is faulty.
    """
    planned = read_plan(folder)
    generators = _generators(settings)
    with input_errors():
        validate.integer(minimum=1, workers=settings.workers)
        validate.positive(timeout=settings.timeout)
    _refuse_finished(folder)
    with one_process(planned.private), _handling(_end, signal.SIGTERM):
        maker = _Maker(planned, settings)
        results, reason = Results(planned), ""
        with results.writing():
            for arm, generator in generators.items():
                if not any(made.arm == arm for made in results.found):
                    maker.try_once(arm, generator)  # before any run is made, also of the control
                results.begin(arm, generator)
            for arm, generator in generators.items():
                if arm != "claimed" and _refuted(planned, results):
                    continue  # what it is for is shown: the audit can find a leak of this generator
                audit = _audit(planned, results, arm, stop=settings.stop)
                maker.make(audit, arm, generator, results)
                if arm == "claimed":
                    reason = audit.stopped
        shutil.rmtree(planned.private / _WORK, ignore_errors=True)
        return MadeRuns(len(results.found), reason)


@contextlib.contextmanager
def _handling(handle: Callable[[int, object], None], *signals: signal.Signals) -> Iterator[None]:
    """Handles signals while the block runs, unless they are ignored, as those of a background job may be."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.signal(one, handle) for one in signals if signal.getsignal(one) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _end(number: int, frame: object = None) -> NoReturn:
    """Ends the process as an exception does, so that commands under way are ended, too."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def score(folder: Path, *, unprotected: bool = False, progress: Progress | None = None) -> MadeRuns:
    """Reads outputs that were made elsewhere, and says which runs are needed next, in ``private/todo.csv``.

    Each row of that file names a data set, and where its output is expected, in ``private/outputs/``. A run that
    failed is an empty file whose name ends in ``.failed``.

    Args:
        folder: of the plan.
        unprotected: whether runs of the generator with its protection off are asked for, too.
        progress: where to show progress.

    Raises:
        InputError: one line, if the plan or an output is faulty.
    """
    planned = read_plan(folder)
    _refuse_finished(folder)
    wanted: list[MadeRun] = []
    with one_process(planned.private), (progress or Progress()).stage("Reading outputs") as step:
        features, results, reason = planned.features(), Results(planned), ""
        with input_errors():
            (planned.private / _OUTPUTS).mkdir(mode=0o700, exist_ok=True)
        with results.writing():
            for arm in ("claimed", "unprotected") if unprotected else ("claimed",):
                results.begin(arm, "made elsewhere")
                audit = _audit(planned, results, arm, stop=True)
                while runs := [MadeRun(arm, one) for one in audit.wanted(_AHEAD)]:
                    read = [one for one in runs if _read_elsewhere(planned, one, features, results, audit)]
                    step(*audit.progress)
                    if not read:
                        wanted += runs
                        break
                if arm == "claimed":
                    reason = audit.stopped
        _write_todo(planned, wanted)
    return MadeRuns(len(results.found), reason, tuple(wanted))


def audit_function(
    function: Function,
    rows: Sequence[Row],
    *,
    claim: PureDP | ApproxDP | None,
    runs: int,
    seed: int,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    confidence: float = 0.95,
    neighbors: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    stop: bool = True,
) -> AuditResult:
    """The whole audit of a Python function in this process, without files: search and test.

    Args:
        function: (records, seed) → synthetic records with the same columns.
        rows: records that neighbours are made like.
        claim: at the adjacency.
        runs: number of runs, pilot runs included.
        seed: of the runs and of made-up words.
        adjacency: of the neighbours.
        confidence: of the bound.
        neighbors: names of strategies; None for all that apply.
        categorical: columns of numbers that are categories.
        stop: whether to stop as soon as the claim is refuted.

    Raises:
        ValueError: if the arguments or the records are invalid.
    """
    relation = Adjacency(adjacency)
    columns = describe_columns(rows, categorical=categorical)
    sample = Sample(tuple(rows), columns, relation)
    pairs = neighboring_data(sample, np.random.default_rng(seed), neighbors)
    data_sets, places = data_sets_of(pairs)
    design = ManyRunsDesign(
        pairs=tuple(
            Pair(pair.name, data, neighbor, pair.events, pair.finds)
            for pair, (data, neighbor) in zip(pairs, places, strict=True)
        ),
        runs=runs,
        confidence=confidence,
        adjacency=relation,
        unit=Unit(),
        claim=claim,
        delta=claim.delta if isinstance(claim, ApproxDP) else 0.0,
        stop=stop,
    )
    audit, features = ManyRuns(design), OutputFeatures(columns, pairs)
    names = {
        data: [pair.name for pair in design.pairs if data in (pair.data, pair.neighbor)]
        for data in range(len(data_sets))
    }
    while wanted := audit.wanted():
        for one in wanted:
            made = MadeRun("claimed", one)
            output = _called(function, data_sets[one.data], _seed(seed, made.spawn_key))
            audit.add(one, failed_output(names[one.data]) if output is None else features.of(output, names[one.data]))
    return audit.result()


def failed_output(pairs: Sequence[str]) -> dict[str, Features]:
    """The result of a run without output."""
    return {"": failed(), **{name: {} for name in pairs}}


def _seed(seed: int, index: int) -> int:
    """A seed of 63 bits that belongs to one run."""
    return int(np.random.SeedSequence(seed, spawn_key=(index,)).generate_state(1, np.uint64)[0] >> 1)


def _generators(settings: RunSettings) -> dict[str, str]:
    """The command, or the name of the function, of each arm."""
    if (settings.command is None) == (settings.function is None):
        raise InputError('give either --command "python gen.py {input} {output}" or --function module:function')
    main = settings.command if settings.command is not None else settings.function
    given = {"claimed": main or "", "unprotected": settings.unprotected}
    found = {arm: generator for arm, generator in given.items() if generator is not None}
    for generator in found.values():
        if settings.function is not None:
            _load(generator)
            continue
        words = _words(generator)
        for place in ("{input}", "{output}"):
            if not any(place in word for word in words):
                raise InputError(
                    f"the command {generator!r} has no {place}; write it as in python gen.py {{input}} {{output}}"
                )
    return found


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"the command {command!r} cannot be split into words: {str(error).lower()}") from None
    if not words:
        raise InputError("the command is empty; write it as in python gen.py {input} {output}")
    return words


@functools.cache
def _load(name: str) -> Function:
    """The function of ``module:function``; the current folder is searched, too.

    Raises:
        InputError: if there is none.
    """
    module, _, function = name.partition(":")
    if not module or not function:
        raise InputError(f"the function {name!r} must be given as module:function")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InputError(f"the function {name!r} cannot be imported: {error}") from None
    if not callable(found):
        raise InputError(f"{name!r} is no function")
    loaded: Function = found
    return loaded


def _called(function: Function, rows: Iterable[Row], seed: int) -> list[dict[str, Any]] | None:
    """The output of a function as rows; None if it failed."""
    try:
        output = list(function(_own(rows), seed))
        return [_record(row) for row in output]
    except (Exception, SystemExit):
        return None


_PLAIN = frozenset([str, int, float, bool, type(None)])


def _own(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """A copy of records, which a function may change."""
    return [dict(row) if _PLAIN.issuperset(map(type, row.values())) else copy.deepcopy(dict(row)) for row in rows]


def _record(row: Any) -> dict[str, Any]:
    """A row of an output in types of Python."""
    record = row if isinstance(row, dict) else {"text": row}
    if _PLAIN.issuperset(map(type, record.values())):
        return record
    return {name: _plain(cell) for name, cell in record.items()}


def _plain(cell: Any) -> Any:
    """A cell in a type of Python: those of NumPy and of pandas are converted."""
    if cell is None or isinstance(cell, str | int | float):
        return cell
    if isinstance(cell, np.generic):
        return cell.item()
    return None if str(cell) in ("<NA>", "NaT") else cell if isinstance(cell, list | dict) else str(cell)


def _call(name: str, rows: Sequence[Row], seed: int) -> tuple[list[dict[str, Any]] | None, float]:
    """The output of a function that is known by its name, or None, and the seconds that it took."""
    start = time.monotonic()
    return _called(_load(name), rows, seed), time.monotonic() - start


def _audit(planned: Planned, results: Results, arm: str, *, stop: bool) -> ManyRuns:
    audit = ManyRuns(planned.plan.design(stop=stop))
    for one, features in results.of(arm).items():
        audit.add(one, features)
    return audit


def _refuted(planned: Planned, results: Results) -> bool:
    return bool(_audit(planned, results, "claimed", stop=True).result().details.get("refuted"))


def _refuse_finished(folder: Path) -> None:
    if (folder / BOUND).exists():
        raise InputError(f"{folder}: its bound was computed; plan a new audit for more runs")


class _Maker:
    """Makes runs, several at a time."""

    def __init__(self, planned: Planned, settings: RunSettings) -> None:
        self._planned, self._settings = planned, settings
        self._features = planned.features()
        self._rows = functools.cache(planned.rows)
        self._commands = _Commands(planned, settings)

    def try_once(self, arm: str, generator: str) -> None:
        """Runs a generator once on the first D, and forgets the output.

        Raises:
            InputError: if it fails there, so that no audit begins with a command that has a mistake.
        """
        data = self._planned.plan.pairs[0].data
        made = MadeRun(arm, Run("pilot", data, TRIAL))
        if self._settings.function is not None:
            function, rows = _load(generator), _own(self._rows(data))
            try:
                output = list(function(rows, _seed(self._planned.plan.seed, made.spawn_key)))
            except (Exception, SystemExit) as error:
                raise InputError(f"the function {generator} fails on the data: {type(error).__name__}") from error
            names = [column.name for column in self._planned.plan.columns]
            if not all(isinstance(row, dict if names != ["text"] else dict | str) for row in output):
                what = "records (dicts), or texts" if names == ["text"] else "records, as dicts of their columns"
                raise InputError(f"the function {generator} must return {what}")
            return
        rows_or_none, reason = self._commands.run(generator, made, keep=False)
        if rows_or_none is None:
            raise InputError(
                f"the command fails on the data ({reason}); its messages are in "
                f"{self._planned.private / _FAILURES / made.name}.txt"
            )

    def make(self, audit: ManyRuns, arm: str, generator: str, results: Results) -> None:
        """Makes all runs that an audit asks for."""
        workers = self._settings.workers
        title = "Runs" if arm == "claimed" else "Runs without protection"
        # Signals wait here, too. Raised wherever they arrive, they could leave a future locked for ever.
        events: queue.SimpleQueue[Future[Any] | int] = queue.SimpleQueue()
        with self._settings.progress.stage(title) as step, self._executor() as executor:
            under_way: dict[Future[Any], MadeRun] = {}
            try:
                with _handling(lambda number, _: events.put(number), signal.SIGINT, signal.SIGTERM):
                    while True:
                        busy = {one.run for one in under_way.values()}
                        wanted = [one for one in audit.wanted(workers) if one not in busy]
                        for one in wanted[: max(0, workers - len(under_way))]:
                            made = MadeRun(arm, one)
                            future = self._submit(executor, generator, made)
                            under_way[future] = made
                            future.add_done_callback(events.put)
                        if not under_way:
                            return
                        event = events.get()
                        if isinstance(event, int):
                            _end(event)
                        made = under_way.pop(event)
                        features, seconds = _result(event)
                        results.add(made, features, seconds)
                        audit.add(made.run, features)
                        step(*audit.progress)
            except BaseException:
                self._commands.stop()
                raise
            finally:
                executor.shutdown(cancel_futures=True)

    @contextlib.contextmanager
    def _executor(self) -> Iterator[Executor]:
        if self._settings.function is not None and self._settings.workers > 1:
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(
                self._settings.workers, mp_context=context, initializer=_ignore_interrupts
            ) as pool:
                yield pool
        else:
            with ThreadPoolExecutor(self._settings.workers) as threads:
                yield threads

    def _submit(self, executor: Executor, generator: str, made: MadeRun) -> Future[Any]:
        pairs = self._planned.plan.pairs_of(made.run.data)
        if self._settings.function is None:
            return executor.submit(self._by_command, generator, made, pairs)
        rows, seed = self._rows(made.run.data), _seed(self._planned.plan.seed, made.spawn_key)
        called = executor.submit(_call, generator, rows, seed)
        scored: Future[Any] = Future()
        called.add_done_callback(lambda done: self._score(done, pairs, scored))
        return scored

    def _score(self, done: Future[Any], pairs: Sequence[str], scored: Future[Any]) -> None:
        try:
            rows, seconds = done.result()
            scored.set_result((self._of(rows, pairs), seconds))
        except BaseException as error:  # is raised where the result is read
            scored.set_exception(error)

    def _by_command(self, command: str, made: MadeRun, pairs: Sequence[str]) -> tuple[dict[str, Features], float]:
        start = time.monotonic()
        rows, _ = self._commands.run(command, made, keep=self._settings.keep)
        seconds = time.monotonic() - start
        return self._of(rows, pairs), seconds

    def _of(self, rows: Iterable[Row] | None, pairs: Sequence[str]) -> dict[str, Features]:
        return failed_output(pairs) if rows is None else self._features.of(rows, pairs)


def _result(future: Future[Any]) -> tuple[dict[str, Features], float]:
    try:
        found: tuple[dict[str, Features], float] = future.result()
    except BrokenExecutor:
        raise InputError(
            "a run of the function ended its process; give --command, with which such a run counts as failed"
        ) from None
    return found


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interruptions


class _Commands:
    """Runs commands, each in an empty folder of its own, on its own copy of a data set."""

    def __init__(self, planned: Planned, settings: RunSettings) -> None:
        self._planned, self._settings = planned, settings
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._logs = 0
        self._stopped = False

    def run(self, command: str, made: MadeRun, *, keep: bool) -> tuple[list[Row] | None, str]:
        """The output of a run, or None and the reason why there is none."""
        # No earlier command writes here, such as one whose audit was killed.
        work = self._planned.private / _WORK / f"{made.name}-{secrets.token_hex(8)}"
        work.mkdir(mode=0o700, parents=True)
        suffix = self._planned.plan.suffix
        places = {
            "{input}": str((work / f"input{suffix}").resolve()),
            "{output}": str((work / f"output{suffix}").resolve()),
            "{seed}": str(_seed(self._planned.plan.seed, made.spawn_key) % 2**32),
        }
        shutil.copyfile(self._planned.data_file(made.run.data), places["{input}"])
        words = _words(command)
        for place, value in places.items():
            words = [word.replace(place, value) for word in words]
        try:
            reason = self._execute(words, work)
            rows: list[Row] | None = None
            if not reason:
                try:
                    rows = [row for _, row in read_rows(places["{output}"])]
                except ValueError as error:
                    reason = f"its output cannot be read: {str(error).rpartition(': ')[2]}"
            if rows is None and not self._stopped:
                self._keep_log(work, made)
            elif rows is not None and keep:
                kept = self._planned.private / _OUTPUTS
                kept.mkdir(mode=0o700, exist_ok=True)
                shutil.move(places["{output}"], kept / f"{made.name}{suffix}")
            return rows, reason
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _execute(self, words: Sequence[str], work: Path) -> str:
        """Runs a command; returns why it failed, or nothing."""
        folder = work / "run"
        folder.mkdir(mode=0o700)
        with (work / "log").open("wb") as log:
            try:
                with self._lock:
                    if self._stopped:
                        return "interrupted"
                    process = subprocess.Popen(
                        _absolute(words),
                        cwd=folder,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                    self._running.add(process)
            except OSError as error:
                raise InputError(f"{words[0]}: cannot be run: {(error.strerror or str(error)).lower()}") from None
            try:
                code = process.wait(self._settings.timeout)
            except subprocess.TimeoutExpired:
                return f"it was stopped after {self._settings.timeout:g} s"
            finally:
                _kill(process)
                with self._lock:
                    self._running.discard(process)
        return f"exit code {code}" if code else ""

    def stop(self) -> None:
        """Ends all commands that are running, and begins no more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)

    def _keep_log(self, work: Path, made: MadeRun) -> None:
        """Keeps what a failed run printed, which may show records, in the private folder."""
        if self._logs >= _KEPT_LOGS or not (work / "log").is_file():
            return
        self._logs += 1
        folder = self._planned.private / _FAILURES
        folder.mkdir(mode=0o700, exist_ok=True)
        write_whole(folder / f"{made.name}.txt", (work / "log").read_bytes()[-_LOG:])


def _absolute(words: Sequence[str]) -> list[str]:
    """Words that name a file here, as absolute paths, since the command runs in a folder of its own."""
    found = []
    for place, word in enumerate(words):
        named = os.sep in word or (place > 0 and bool(os.path.splitext(word)[1]))  # not the 1 of `--epsilon 1`
        here = named and os.path.exists(word) and not word.startswith("-")
        found.append(os.path.abspath(word) if here else word)
    return found


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends a command and what it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read_elsewhere(
    planned: Planned, made: MadeRun, features: OutputFeatures, results: Results, audit: ManyRuns
) -> bool:
    """Adds the result of a run that was made elsewhere, if it is there."""
    pairs = planned.plan.pairs_of(made.run.data)
    path = planned.private / _OUTPUTS / f"{made.name}{planned.plan.suffix}"
    found: Mapping[str, Features]
    if path.is_file():
        with input_errors():
            found = features.of((row for _, row in read_rows(path)), pairs)
    elif path.with_name(f"{path.name}.failed").exists():
        found = failed_output(pairs)
    else:
        return False
    results.add(made, dict(found))
    audit.add(made.run, found)
    return True


def _write_todo(planned: Planned, wanted: Sequence[MadeRun]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["generator", "input", "output", "seed"])
    for made in wanted:
        writer.writerow(
            [
                made.arm,
                planned.data_file(made.run.data).relative_to(planned.folder),
                Path("private", _OUTPUTS, f"{made.name}{planned.plan.suffix}"),
                _seed(planned.plan.seed, made.spawn_key) % 2**32,
            ]
        )
    write_whole(planned.private / _TODO, out.getvalue())
