"""Makes the runs of a planned audit: by a command, by a Python function, or elsewhere, where only files cross."""

from __future__ import annotations

import contextlib
import csv
import functools
import hashlib
import io
import json
import queue
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.guarantees import ApproxDP, PureDP
from dpassay.attacks.black_box.column_facts import Row, describe_columns
from dpassay.attacks.black_box.neighboring_data import NeighboringData, Sample, data_sets_of
from dpassay.attacks.black_box.output_features import Features, OutputFeatures, failed
from dpassay.attacks.black_box.own_neighbors import own_in_words, own_neighbors, own_pair
from dpassay.attacks.black_box.probes import probe
from dpassay.attacks.black_box.worst_cases import FINDS, difference_in_words, neighboring_data
from dpassay.auditing.files import BOUND
from dpassay.auditing.many_runs.audited import made_elsewhere, of_generator
from dpassay.auditing.many_runs.cluster import Cluster
from dpassay.auditing.many_runs.commands import (
    OUTPUTS,
    WORK,
    Commands,
    Logs,
    Unreadable,
    absolute,
    rows_of,
    seed_of,
    words_of,
)
from dpassay.auditing.many_runs.explain import Explanation, write_explanation, write_variant
from dpassay.auditing.many_runs.files import PlannedRuns, read_plan
from dpassay.auditing.many_runs.functions import Function, FunctionProcesses, called, load, source_of
from dpassay.auditing.many_runs.plan import features_of
from dpassay.auditing.many_runs.probes import ProbeRows, marks_of, pair_named
from dpassay.auditing.many_runs.results import TRIAL, TRIALS, MadeRun, Results
from dpassay.audits.games.many_runs import ManyRuns
from dpassay.audits.games.many_runs_design import GeneratorRun, ManyRunsDesign, Pair
from dpassay.audits.result import AuditResult
from dpassay.base import defaults, validate
from dpassay.base.errors import InputError, input_errors
from dpassay.base.private_files import one_process, write_private
from dpassay.base.progress import Progress
from dpassay.data.columns import Kind, Rules

T = TypeVar("T")

_AHEAD = 16  # rounds that are asked for at once where runs are made elsewhere
_SHOWN = 5  # columns that an output lacks
_OF_GENERATORS = frozenset([".py", ".ipynb", ".r", ".jl", ".js", ".sh", ".yaml", ".yml", ".toml", ".json"])
_TODO, _FAILURES = "todo.csv", "failures"


@dataclass(frozen=True)
class MadeRuns:
    """How far an audit is.

    Attributes:
        made: number of runs with a result, those of the unprotected generator included.
        reason: why the audit of the claimed generator needs no more runs; empty if it does.
        wanted: the runs that are needed next; empty if the audit is finished.
        notes: what the first output lacks, a sentence each.
    """

    made: int
    reason: str
    wanted: tuple[MadeRun, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The state as plain JSON types."""
        wanted = [run.name for run in self.wanted]
        made = {"runs": self.made, "wanted": wanted, "finished": not wanted, "reason": self.reason}
        return {**made, "notes": list(self.notes)}


def run(
    folder: str | Path,
    *,
    command: str | None = None,
    function: str | None = None,
    unprotected: str | None = None,
    workers: int = 1,
    cluster: str | None = None,
    timeout: float = defaults.MANY_RUNS_TIMEOUT,
    stop: bool = True,
    keep: bool = False,
    explain: bool = False,
    progress: Progress | None = None,
) -> MadeRuns:
    """Runs the generator until the claim is refuted or all planned runs are made. Called again, it resumes.

    Args:
        folder: of the plan.
        command: of the generator, with ``{input}`` and ``{output}``, and ``{seed}`` if it takes one. No shell is used.
        function: in its place ``module:function``, called with the records and a seed; it returns synthetic records.
        unprotected: the same command or function with its protection off: the positive control.
        workers: number of runs at a time.
        cluster: address of a scheduler of `dask.distributed`, such as ``tcp://10.0.0.1:8786``, whose workers run the
            command, as many at a time as they have threads.
        timeout: seconds after which a run is stopped and counts as failed.
        stop: whether to stop as soon as the claim is refuted; otherwise the bound may become larger.
        keep: whether outputs are kept in ``private/outputs``.
        explain: whether further runs look for the column of the target that gives it away, if the claim is refuted.
        progress: where to show progress.

    Returns:
        How many runs have a result, and why no more are needed.

    Raises:
        InputError: if the plan, the generator or its first run is faulty.
    """
    planned = read_plan(Path(folder))
    generators = _generators(command, function, unprotected)
    with input_errors():
        validate.integer(minimum=1, workers=workers)
        validate.positive(timeout=timeout)
    _refuse_finished(planned.folder)
    if cluster is not None and function is not None:
        raise InputError("a function runs on this machine only; give --cluster a --command")
    if cluster is not None and workers != 1:
        raise InputError("--workers is of this machine, and a cluster has workers of its own; leave one of them out")
    elsewhere = None if cluster is None else Cluster(cluster)
    if elsewhere is not None:
        workers = elsewhere.workers
        (progress or Progress()).note(f"{workers} runs at a time on the cluster; watch it at {elsewhere.dashboard}")
    with (
        one_process(planned.private),
        _handling(_end, signal.SIGTERM),
        contextlib.closing(_Maker(planned, function is None, timeout, keep, elsewhere)) as maker,
    ):
        results, reason = Results(planned), ""
        with results.writing():
            for arm, generator in generators.items():
                if not any(made.arm == arm for made in results.by_run):
                    maker.try_once(arm, generator)  # before any run is made, also of the control
                results.begin(
                    arm,
                    _identity(generator, command=function is None),
                    of_generator(
                        generator,
                        words_of(generator) if function is None else None,
                        source_of(generator) if function is not None else None,
                        workers=workers,
                        timeout=timeout,
                    ),
                )
            for arm, generator in generators.items():
                if arm != "claimed" and results.audit("claimed").result().details.get("refuted"):
                    continue  # what it is for is shown: the audit can find a leak of this generator
                audit = results.audit(arm, stop=stop)
                title = "Runs" if arm == "claimed" else "Runs without protection"
                maker.make(audit, arm, generator, results.add, workers, progress or Progress(), title)
                if arm == "claimed":
                    reason = audit.stopped
            if explain:
                maker.explain(results, generators["claimed"], workers, progress or Progress())
            results.end()
        shutil.rmtree(planned.private / WORK, ignore_errors=True)
        return MadeRuns(len(results.by_run), reason, notes=tuple(maker.notes))


@contextlib.contextmanager
def _handling(handle: Callable[[int, object], None], *signals: signal.Signals) -> Iterator[None]:
    """Handles signals while the block runs, unless they are ignored, as those of a background job may be."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {item: signal.signal(item, handle) for item in signals if signal.getsignal(item) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for item, handler in before.items():
            signal.signal(item, handler)


def _end(number: int, frame: object = None) -> NoReturn:
    """Ends the process as an exception does, so that commands under way are ended, too."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def score(folder: str | Path, *, unprotected: bool = False, progress: Progress | None = None) -> MadeRuns:
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
    planned = read_plan(Path(folder))
    _refuse_finished(planned.folder)
    wanted: list[MadeRun] = []
    with one_process(planned.private), (progress or Progress()).stage("Reading outputs") as step:
        features, results, reason = planned.features(), Results(planned), ""
        with input_errors():
            (planned.private / OUTPUTS).mkdir(mode=0o700, exist_ok=True)
        with results.writing():
            for arm in ("claimed", "unprotected") if unprotected else ("claimed",):
                results.begin(arm, "made elsewhere", made_elsewhere())
                audit = results.audit(arm)
                while runs := [MadeRun(arm, item) for item in audit.wanted(_AHEAD)]:
                    read = [item for item in runs if _read_elsewhere(planned, item, features, results, audit)]
                    step(*audit.progress)
                    if not read:
                        wanted += runs
                        break
                if arm == "claimed":
                    reason = audit.stopped
            results.end()
        _write_todo(planned, wanted)
    return MadeRuns(len(results.by_run), reason, tuple(wanted))


def audit_function(
    function: Function,
    rows: Sequence[Row] | None = None,
    *,
    pair: tuple[Sequence[Row], Sequence[Row]] | None = None,
    claim: PureDP | ApproxDP | None,
    runs: int,
    seed: int,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    confidence: float = defaults.CONFIDENCE,
    neighbors: Sequence[str] | None = None,
    numbers: Sequence[str] = (),
    categorical: Sequence[str] = (),
    ids: Sequence[str] = (),
    stop: bool = True,
) -> AuditResult:
    """The whole audit of a Python function in this process, without files: search and test.

    Args:
        function: (records, seed) → synthetic records with the same columns.
        rows: records that neighbours are made like.
        pair: in their place, two neighbouring data sets, the only pair that is tested. With add_remove D is the one
            with fewer records, with replace_one the first.
        claim: at the adjacency.
        runs: number of runs, pilot runs included.
        seed: of the runs and of made-up words.
        adjacency: of the neighbours.
        confidence: of the bound.
        neighbors: names of strategies; None for all that apply.
        numbers: columns of numbers, also where they seem to number the records.
        categorical: columns of numbers that are categories.
        ids: columns of ids, which are no value of a record.
        stop: whether to stop as soon as the claim is refuted.

    Raises:
        ValueError: if the arguments or the records are invalid, or the first output has no column of the data; later
            ones then count as failed runs.
    """
    relation = Adjacency(adjacency)
    kinds = {
        name: kind
        for kind, names in ((Kind.NUMBER, numbers), (Kind.CATEGORY, categorical), (Kind.IDENTIFIER, ids))
        for name in names
    }
    if (rows is None) == (pair is None):
        raise ValueError("give either rows, which neighbours are made like, or pair, two neighbouring data sets")
    if pair is not None and neighbors is not None:
        raise ValueError(
            "neighbors names strategies that make neighbours, and pair gives them; leave one of the two out"
        )
    own = None if pair is None else own_neighbors(*pair, relation, Unit())
    like = tuple(rows or ()) if own is None else own.data
    columns = describe_columns(like, rules=Rules(kinds))
    probing = None
    if own is not None:
        pairs: tuple[NeighboringData, ...] = (own_pair(own, columns)[0],)
    else:
        sample, rng = Sample(tuple(like), columns, relation), np.random.default_rng(seed)
        pairs = neighboring_data(sample, rng, neighbors)
        probing = None if neighbors is not None else probe(sample, rng)
    data_sets, indices = data_sets_of(pairs)
    held = features_of(columns, pairs, data_sets, indices)
    planted = None if probing is None else ProbeRows(probing, len(data_sets))
    design = ManyRunsDesign(
        pairs=tuple(
            Pair(
                made.name,
                data,
                neighbor,
                made.events,
                FINDS[made.name],
                own_in_words(relation, 1) if own is not None else difference_in_words(made.name, relation, 1),
                ({**held[data][""], **held[data][made.name]}, {**held[neighbor][""], **held[neighbor][made.name]}),
            )
            for made, (data, neighbor) in zip(pairs, indices, strict=True)
        ),
        probe=None if planted is None else planted.design,
        runs=runs,
        confidence=confidence,
        adjacency=relation,
        unit=Unit(),
        claim=claim,
        delta=claim.delta if isinstance(claim, ApproxDP) else 0.0,
        stop=stop,
    )
    audit = ManyRuns(design)
    ladders = () if probing is None else probing.ladders
    features = OutputFeatures(columns, pairs, marks_of(ladders), lambda name: pair_named(name, ladders))

    def of_data(number: int) -> tuple[Sequence[Row], list[str]]:
        """The records of a data set, and the names of its pairs or ladders."""
        if number < len(data_sets) or planted is None:
            return data_sets[number], [item.name for item in design.pairs if number in (item.data, item.neighbor)]
        return planted.rows(number), planted.names(number)

    added = False
    while wanted := audit.wanted():
        for item in wanted:
            made = MadeRun("claimed", item)
            data, names = of_data(item.data)
            try:
                output = called(function, data, seed_of(seed, made.spawn_key))
            except (Exception, SystemExit):
                audit.add(item, failed_output(names))
                continue
            if output and not like[0].keys() & output[0].keys():
                if not added:
                    raise ValueError(
                        "the records that the function returns have no column of the data; name them alike"
                    )
                audit.add(item, failed_output(names))  # later ones may tell the data sets apart
                continue
            audit.add(item, features.of(output, names))
            added = True
    return audit.result()


def failed_output(pairs: Sequence[str]) -> dict[str, Features]:
    """The result of a run without output."""
    return {"": failed(), **{name: {} for name in pairs}}


def _generators(command: str | None, function: str | None, unprotected: str | None) -> dict[str, str]:
    """The command, or the name of the function, of each arm."""
    if (command is None) == (function is None):
        raise InputError('give either --command "python gen.py {input} {output}" or --function module:function')
    given = {"claimed": command if command is not None else function, "unprotected": unprotected}
    results = {arm: generator for arm, generator in given.items() if generator is not None}
    for generator in results.values():
        if function is not None:
            load(generator)
            continue
        words = words_of(generator)
        for index in ("{input}", "{output}"):
            if not any(index in word for word in words):
                raise InputError(
                    f"the command {generator!r} has no {index}; write it as in python gen.py {{input}} {{output}}"
                )
    return results


def _identity(generator: str, *, command: bool) -> str:
    """A command with the programs and settings that it names, or a function with its module."""
    if command:
        words = absolute(words_of(generator))
        words[0] = shutil.which(words[0]) or words[0]
        files = [path for path in map(Path, words) if path.suffix.lower() in _OF_GENERATORS]
    else:
        words, files = [generator], [file for file in [source_of(generator)] if file is not None]
    hashes = []
    for path in filter(Path.is_file, files):
        with input_errors(), path.open("rb") as file:
            hashes.append(hashlib.file_digest(file, "sha256").hexdigest())
    return json.dumps([words, hashes])


def _refuse_finished(folder: Path) -> None:
    if (folder / BOUND).exists():
        raise InputError(f"{folder}: its bound was computed; plan a new audit for more runs")


class _Maker:
    """Makes runs, several at a time.

    Args:
        planned: the plan.
        of_commands: whether generators are commands, not functions.
        timeout: of a run, in seconds.
        keep: whether outputs are kept.
        cluster: whose workers run commands; None for this machine.
    """

    def __init__(
        self, planned: PlannedRuns, of_commands: bool, timeout: float, keep: bool, cluster: Cluster | None = None
    ) -> None:
        self._planned, self._of_commands, self._keep = planned, of_commands, keep
        self.notes: list[str] = []
        self._features = planned.features()
        self._rows = functools.cache(lambda data: tuple(planned.rows(data)))
        self._more_rows: dict[int, Sequence[Row]] = {}
        self._more_files: dict[int, Callable[[Path], None]] = {}
        self._more_pairs: dict[int, list[str]] = {}
        self._logs = Logs(planned.private / _FAILURES)
        self._commands = Commands(planned, timeout, self._logs, cluster)
        self._functions = FunctionProcesses(timeout, planned.private / WORK)

    def try_once(self, arm: str, generator: str) -> None:
        """Runs a generator on the first D until one run succeeds, and forgets the output.

        Raises:
            InputError: if all `TRIALS` runs fail, so that no audit begins with a command that has a mistake.
        """
        plan = self._planned.plan
        what = "the command" if self._of_commands else f"the function {generator}"
        for trial in range(TRIALS):  # a generator may fail by chance, or be slow when it first starts
            made = MadeRun(arm, GeneratorRun("pilot", plan.pairs[0].data, TRIAL - trial))
            result = self._run(generator, made, lambda rows: {name for row in rows for name in row})
            if not isinstance(result, str):
                break
            if not trial:
                reason, log = result, self._logs.file(made)
        if isinstance(result, str):
            raise InputError(
                f"{what} fails on the data ({reason}), in each of {TRIALS} tries; its messages are in {log}"
            )
        if trial:
            self.notes.append(
                f"{what[:1].upper()}{what[1:]} failed in {trial} of {trial + 1} trial runs ({reason}); its messages "
                f"are in {log}. Later runs that fail are counted."
            )
        self._commands.try_each(generator, made)
        lacking = [column.name for column in plan.columns if column.kind != "id" and column.name not in result]
        if not result:
            self.notes.append(f"The first output of {what} has no rows.")
        elif lacking:
            self.notes.append(
                f"The first output of {what} lacks {len(lacking)} of {len(plan.columns)} columns of the data, which "
                f"count as empty: {', '.join(map(repr, lacking[:_SHOWN]))}{' and others' * (len(lacking) > _SHOWN)}."
            )

    def _run(self, generator: str, made: MadeRun, use: Callable[[Iterable[Row]], T]) -> T | str:
        """What becomes of the output of a run; or why there is none."""
        if self._of_commands:
            keep = self._keep and not made.is_trial and made.run.data not in self._more_rows
            return self._commands.run(generator, made, use, keep=keep, write=self._more_files.get(made.run.data))
        seed = seed_of(self._planned.plan.seed, made.spawn_key)
        rows = self._functions.call(
            generator, self._rows_of(made.run.data), seed, lambda log: self._logs.keep(log, made)
        )
        if isinstance(rows, str):
            return rows
        if rows and not self._planned.plan.names & rows[0].keys():
            return "its records have no column of the data; it must return records, as dicts of their columns"
        return use(rows)

    def _rows_of(self, data: int) -> Sequence[Row]:
        return self._more_rows[data] if data in self._more_rows else self._rows(data)

    def _score(self, generator: str, made: MadeRun) -> tuple[dict[str, Features], float]:
        """The features of the output of a run, and the seconds that it took."""
        pairs = self._more_pairs.get(made.run.data) or self._planned.plan.pairs_of(made.run.data)
        start, end = time.monotonic(), 0.0

        def use(rows: Iterable[Row]) -> dict[str, Features]:
            nonlocal end
            end = time.monotonic()  # the output is there, and describing it is no time of the generator
            return self._features.of(rows, pairs)

        result = self._run(generator, made, use)
        seconds = (end or time.monotonic()) - start
        return failed_output(pairs) if isinstance(result, str) else result, seconds

    def make(
        self,
        audit: ManyRuns | Explanation,
        arm: str,
        generator: str,
        keep: Callable[[MadeRun, dict[str, Features], float], None],
        workers: int,
        progress: Progress,
        title: str,
    ) -> None:
        """Makes all runs that an audit asks for, and keeps the result of each."""
        # Signals wait here, too. Raised wherever they arrive, they could leave a future locked for ever.
        events: queue.SimpleQueue[Future[Any] | int] = queue.SimpleQueue()
        with progress.stage(title) as step, ThreadPoolExecutor(workers) as executor:
            under_way: dict[Future[Any], MadeRun] = {}
            try:
                with _handling(lambda number, _: events.put(number), signal.SIGINT, signal.SIGTERM):
                    while True:
                        busy = {item.run for item in under_way.values()}
                        wanted = [item for item in self._shuffled(arm, audit.wanted(workers)) if item not in busy]
                        for item in wanted[: max(0, workers - len(under_way))]:
                            made = MadeRun(arm, item)
                            future = executor.submit(self._score, generator, made)
                            under_way[future] = made
                            future.add_done_callback(events.put)
                        if not under_way:
                            return
                        event = events.get()
                        if isinstance(event, int):
                            _end(event)
                        made = under_way.pop(event)
                        features, seconds = event.result()
                        keep(made, features, seconds)
                        audit.add(made.run, features)
                        step(*audit.progress)
            except BaseException:
                self.close()
                raise
            finally:
                executor.shutdown(cancel_futures=True)

    def explain(self, results: Results, generator: str, workers: int, progress: Progress) -> None:
        """Makes the runs that explain a refutation; says so if there is none."""
        result = results.audit("claimed").result()
        if not result.details["refuted"]:
            self.notes.append("The claim is not refuted, so there is nothing to explain.")
            return
        explanation = Explanation(self._planned, result)
        for index, variant in enumerate(explanation.variants):
            data = explanation.first + index
            self._more_rows[data] = variant.rows
            if self._of_commands:
                self._more_files[data] = functools.partial(write_variant, self._planned, explanation.pair, variant.rows)
            self._more_pairs[data] = [explanation.pair.name]
        self.make(explanation, "claimed", generator, lambda *_: None, workers, progress, "Runs that explain")
        self.notes.append(write_explanation(self._planned, explanation)["says"])

    def close(self) -> None:
        """Ends all runs that are under way, and begins no more."""
        self._commands.stop()
        self._functions.stop()

    def _shuffled(self, arm: str, runs: Sequence[GeneratorRun]) -> list[GeneratorRun]:
        """The runs of each round in random order: one that keeps state should not tell D from D′ by their order."""
        seed = self._planned.plan.seed
        return sorted(runs, key=lambda item: (item.number, seed_of(seed, MadeRun(arm, item).spawn_key)))


def _read_elsewhere(
    planned: PlannedRuns, made: MadeRun, features: OutputFeatures, results: Results, audit: ManyRuns
) -> bool:
    """Adds the result of a run that was made elsewhere, if it is there."""
    pairs = planned.plan.pairs_of(made.run.data)
    path = planned.private / OUTPUTS / f"{made.name}{planned.plan.suffix}"
    mark = path.with_name(f"{path.name}.failed")
    result: Mapping[str, Features]
    if mark.exists():  # also if it wrote something before it failed
        result = failed_output(pairs)
    elif path.is_file():
        try:
            result = features.of(rows_of(planned, str(path)), pairs)
        except Unreadable as error:
            raise InputError(
                f"{path}: cannot be read: {error}; if it is still being copied, wait; else the run has failed: make an "
                f"empty file {mark.name}, and do not make the run again"
            ) from None
    else:
        return False
    results.add(made, dict(result))
    audit.add(made.run, result)
    return True


def _write_todo(planned: PlannedRuns, wanted: Sequence[MadeRun]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["generator", "input", "output", "seed"])
    for made in wanted:
        writer.writerow(
            [
                made.arm,
                planned.data_file(made.run.data).relative_to(planned.folder),
                Path("private", OUTPUTS, f"{made.name}{planned.plan.suffix}"),
                seed_of(planned.plan.seed, made.spawn_key) % 2**32,
            ]
        )
    write_private(planned.private / _TODO, out.getvalue())
