"""`dpassay audit mechanism`: records the noise of a library's function, and replays it on neighbours of the data."""

from __future__ import annotations

import copy
import importlib.metadata
import inspect
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from dp_accounting import dp_event

from dpassay import __version__
from dpassay.attacks.black_box.recorder import Recorder
from dpassay.auditing.mechanism.files import (
    OUTPUT,
    Manifest,
    NoiseDraw,
    as_data,
    event_multiplier,
    located,
    read_manifest,
)
from dpassay.audits.games.replay.record_replay import FALSE_ALARM, Finding, record_replay_findings
from dpassay.audits.result import AuditResult
from dpassay.base import validate
from dpassay.base.arrays import Floats
from dpassay.base.errors import InputError, input_errors
from dpassay.base.number_format import format_number, format_p_value
from dpassay.base.progress import Progress

RUNS = 1000
"""Recorded runs: enough noise to see that half of it is missing."""
TOLERANCE = 1e-6
"""The relative excess over a sensitivity that is ignored: libraries add numbers in their own order."""

LIMITS = (
    "It can show that a declared sensitivity is exceeded on this pair, that the number of draws depends on the data, "
    "or that the noise does not have the declared law and scale on these data.",
    "It does not show an ε, and it does not show that a sensitivity holds: other neighbours, other arguments and other "
    "branches of the code were not run.",
    "Private data that reach the output outside of the named draws are found only where the output changes while all "
    "draws stay the same; with query: output they are not looked for.",
)


@dataclass(frozen=True, kw_only=True)
class MechanismAudit:
    """The result of an audit of a library's function.

    Attributes:
        manifest: what was audited.
        sha256: of the manifest's file.
        version: of the library.
        runs: number of recorded runs.
        values: number of values of noise in the first of them, by draw.
        findings: what does not hold.
        audit: the same as an audit result.
    """

    manifest: Manifest
    sha256: str
    version: str
    runs: int
    values: dict[str, int]
    findings: tuple[Finding, ...]
    audit: AuditResult

    @property
    def refuted(self) -> bool:
        """Whether a declaration of the manifest does not hold."""
        return bool(self.findings)

    @property
    def concluded(self) -> bool:
        """Whether a conclusion is drawn."""
        return self.audit.concluded

    @property
    def limitations(self) -> tuple[str, ...]:
        """What such an audit can show, and what this one took for granted."""
        if not self.manifest.releases:
            return LIMITS
        return (
            f"Assumed, and not checked: what {' and '.join(self.manifest.releases)} returned is released with a "
            "privacy cost of its own, which the named draws do not pay.",
            *LIMITS,
        )

    def to_json(self) -> dict[str, Any]:
        """The audit as plain JSON types."""
        return {
            "schema": 1,
            "dpassay": __version__,
            "manifest": {**self.manifest.model_dump(exclude={"data", "neighbors"}), "sha256": self.sha256},
            "records": len(self.manifest.data),
            "neighbors": len(self.manifest.neighbors),
            "versions": {"python": platform.python_version(), self.manifest.library: self.version},
            "runs": self.runs,
            "values": self.values,
            "refuted": self.refuted,
            "findings": [in_words(finding, self.manifest) for finding in self.findings],
            "limitations": list(self.limitations),
            "audit": self.audit.to_json(),
        }

    def in_words(self) -> list[str]:
        """The result in sentences: what was run, what was found, and what such an audit can show."""
        manifest = self.manifest
        drawn = ", ".join(f"{number} of {draw}" for draw, number in self.values.items())
        count = len(manifest.neighbors)
        plural = "" if count == 1 else "s"
        return [
            f"{manifest.call} of {manifest.library} {self.version}: {self.runs} recorded runs, each replayed on "
            f"{count} neighbour{plural} ({manifest.adjacency}); values of noise in a run: {drawn}.",
            *(in_words(finding, manifest) for finding in self.findings),
            _NOT_PROVEN if self.findings else self.audit.conclusion,
            *self.limitations,
        ]


def audit_mechanism(
    manifest: str | Path,
    *,
    runs: int = RUNS,
    output: str | Path | None = None,
    progress: Progress | None = None,
) -> MechanismAudit:
    """Records the noise that a function of an installed library draws, and replays it on neighbours of the data.

    The library is imported, which runs its code; use manifests and libraries that you trust.

    Args:
        manifest: a YAML file (`docs/audit-mechanism.md`).
        runs: number of recorded runs, at least 2; more make tests of the noise stronger.
        output: private folder for ``report.json`` and ``report.html``; None to write nothing.
        progress: where to show progress.

    Raises:
        InputError: if the manifest is wrong, the library or a function is not installed, or the function fails or does
            not call what the manifest names.
    """
    shown, path = progress or Progress(), Path(manifest)
    read, sha256 = read_manifest(path)
    with input_errors():
        validate.integer(minimum=2, runs=runs)
    with _naming(path):
        version = _version(read.library)
        function = _called(read)
        draws = [located(item.draw, f"noise.{index}.draw") for index, item in enumerate(read.noise)]
        followed = {
            item.follows: located(item.follows, f"noise.{index}.query")
            for index, item in enumerate(read.noise)
            if item.follows is not None
        }
        for index, (item, (*_, drawing)) in enumerate(zip(read.noise, draws, strict=True)):
            _check_query(item, drawing, index)
        released = [located(name, f"releases.{index}") for index, name in enumerate(read.releases)]
        mechanism = _Adapted(read, function, draws, followed, released)
        data, *others = (as_data(records, read.form) for records in (read.data, *read.neighbors))
        with shown.stage("Recording and replaying") as step:
            findings = record_replay_findings(
                mechanism,
                data,
                others,
                adjacency=read.relation,
                recordings=runs,
                tolerance=TOLERANCE,
            )
            step(1, 1)
    result = MechanismAudit(
        manifest=read,
        sha256=sha256,
        version=version,
        runs=runs,
        values=mechanism.values,
        findings=tuple(findings),
        audit=_as_audit(read, findings, runs),
    )
    if output is not None:
        from dpassay.auditing.mechanism.page import write_page  # templates are not loaded otherwise

        with input_errors():
            Path(output).mkdir(mode=0o700, parents=True, exist_ok=True)
        write_page(Path(output), read, result.to_json(), 1 - FALSE_ALARM)
    return result


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Errors of the user inside begin with the path of the manifest."""
    try:
        with input_errors():
            yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _called(manifest: Manifest) -> Callable[..., Any]:
    """The audited function; a method is called of a new object each time."""
    holder, name, function = located(manifest.call, "call")
    made = manifest.object
    if made is None:
        return function
    if not inspect.isclass(holder):
        raise InputError(f"object: {manifest.call} is no method of a class")

    def method(*args: Any, **kwargs: Any) -> Any:
        return getattr(holder(**made), name)(*args, **kwargs)

    return method


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        raise InputError(
            f"library: no distribution {library!r} is installed; give the name that pip shows, as in pip install"
        ) from None


def _check_query(item: NoiseDraw, drawing: Callable[..., Any], index: int) -> None:
    try:
        names = list(inspect.signature(drawing).parameters)
    except (TypeError, ValueError):
        names = []
    if names and item.scale_argument is not None and item.scale_argument not in names:
        raise InputError(
            f"noise.{index}.scale_argument: {item.draw} has no argument {item.scale_argument!r}; its arguments are "
            f"{_in_a_row(names)}"
        )
    if item.returns_noise:
        return
    if item.query not in names:
        raise InputError(
            f"noise.{index}.query: {item.draw} has no argument {item.query!r}; its arguments are {_in_a_row(names)}; "
            f"or {OUTPUT} or module:function, if it returns noise alone"
        )


def _in_a_row(names: Sequence[str]) -> str:
    return ", ".join(name for name in names if name != "self") or "not known"


Draw: TypeAlias = tuple[Any, str, Callable[..., Any]]
"""The object that holds a function, its name there, and the function."""


class _Adapted:
    """The library's function as a mechanism under test: all calls of a draw in a run are one step of the recorder.

    Args:
        manifest: what is audited.
        function: of data and the other arguments.
        draws: those of the manifest, in its order.
        followed: the functions whose last result is an exact value, by name.
        released: those whose results are released.
    """

    def __init__(
        self,
        manifest: Manifest,
        function: Callable[..., Any],
        draws: Sequence[Draw],
        followed: Mapping[str, Draw],
        released: Sequence[Draw],
    ) -> None:
        self._manifest, self._function, self._draws = manifest, function, draws
        self._followed, self._released = followed, released
        self._past: dict[int, tuple[list[list[Any]], list[list[Any]]]] = {}
        """What each draw and each other function released, by the first step of a recording."""
        self.values: dict[str, int] = {}

    def __call__(self, data: Any, recorder: Recorder) -> Any:
        manifest = self._manifest
        past, others = None, None
        if recorder.past is not None:
            past, others = self._past[id(recorder.past.steps[0].value)]
        results = {name: _LastResult() for name in self._followed}
        calls = [
            _Calls(item, None if past is None else past[number], results.get(item.follows or ""))
            for number, item in enumerate(manifest.noise)
        ]
        releases = [
            _ReplayedResults(None if others is None else others[number]) for number in range(len(self._released))
        ]
        watched = [
            *((self._followed[name], result.kept) for name, result in results.items()),
            *zip(self._released, (release.made for release in releases), strict=True),
            *zip(self._draws, (made.made for made in calls), strict=True),
        ]
        with _patched(watched):
            try:
                if manifest.data_argument is None:
                    output = self._function(data, **manifest.passed())
                else:
                    output = self._function(**{manifest.data_argument: data}, **manifest.passed())
            except InputError:
                raise
            except Exception as error:
                first = (str(error).splitlines() or [""])[0]
                raise InputError(f"call: {manifest.call} failed with {type(error).__name__}: {first}") from error
        for item, made in zip(manifest.noise, calls, strict=True):
            if not made.released:
                raise InputError(f"noise: {manifest.call} does not call {item.draw}; name the function that it calls")
            query, noise = made.query_and_noise(output)
            self.values.setdefault(item.draw, query.size)
            _release(recorder, item, query, noise, event_multiplier(item, manifest.relation))
        if recorder.past is None:
            self._past[id(recorder.steps[0].value)] = (
                [made.released for made in calls],
                [release.results for release in releases],
            )
        return None if manifest.noise[0].query == OUTPUT else output


class _LastResult:
    """The last result of a function while it is watched."""

    def __init__(self) -> None:
        self.value: Any = None

    def kept(self, function: Callable[..., Any], signature: inspect.Signature | None, *args: Any, **kwargs: Any) -> Any:
        self.value = function(*args, **kwargs)
        return self.value


class _ReplayedResults:
    """The results of a function that are released; with `past`, those of the recorded run again."""

    def __init__(self, past: list[Any] | None) -> None:
        self._past = past
        self.results: list[Any] = []

    def made(self, function: Callable[..., Any], signature: inspect.Signature | None, *args: Any, **kwargs: Any) -> Any:
        number = len(self.results)
        known = self._past is not None and number < len(self._past)
        result = self._past[number] if known and self._past is not None else function(*args, **kwargs)
        self.results.append(copy.deepcopy(result))
        return result


class _Calls:
    """The calls of one draw during a run; with `past`, they release what they released in the recorded run.

    Args:
        item: the draw.
        past: what was released by each call of the recorded run.
        follows: the result that holds the exact value; None if it is found elsewhere.
    """

    def __init__(self, item: NoiseDraw, past: list[Any] | None, follows: _LastResult | None) -> None:
        self._item, self._past, self._follows = item, past, follows
        self.released: list[Any] = []
        self._queries: list[Floats] = []
        self._scales: list[Floats] = []

    def made(self, drawing: Callable[..., Any], signature: inspect.Signature | None, *args: Any, **kwargs: Any) -> Any:
        item, query, shape = self._item, None, ()
        if self._follows is not None:
            if self._follows.value is None:
                raise InputError(f"noise: {item.follows} returned nothing before {item.draw} was called")
            query, shape = _numbers(self._follows.value, f"what {item.follows} returns"), np.shape(self._follows.value)
        elif item.query != OUTPUT:
            assert signature is not None
            query = _numbers(signature.bind(*args, **kwargs).arguments.get(item.query), f"the query of {item.draw}")
        if query is not None:
            self._queries.append(query)
        number = len(self.released)
        past = None if self._past is None or number >= len(self._past) else self._past[number]
        if self._follows is None:
            released = drawing(*args, **kwargs) if past is None else past
            noise = released
        else:
            assert query is not None
            if past is not None and past.size == query.size:
                noise, released = (past - query).reshape(shape)[()], past
            else:
                noise = drawing(*args, **kwargs)
                released = query + self._noise_of(noise, query)
        self.released.append(released)
        if item.scale_argument is not None:
            scale = _numbers(_argument(item, signature, args, kwargs), f"the argument {item.scale_argument!r}")
            self._scales.append(np.broadcast_to(scale, _numbers(released, f"what {item.draw} returns").shape))
        return noise

    def _noise_of(self, noise: Any, query: Floats) -> Floats:
        """The noise that was drawn for a query, as numbers."""
        values = _numbers(noise, f"what {self._item.draw} returns")
        if values.size != query.size:
            raise InputError(
                f"noise: {self._item.draw} drew {values.size} numbers, and {self._item.follows} returned {query.size} "
                "before"
            )
        return values

    def query_and_noise(self, output: Any) -> tuple[Floats, Floats]:
        """The queries of the run and the noise that was added, both divided by the scale if an argument holds it."""
        values = np.concatenate([_numbers(item, f"what {self._item.draw} returns") for item in self.released])
        if self._item.query == OUTPUT:
            whole = _numbers(output, "the output")
            if whole.size != values.size:
                raise InputError(
                    f"noise: the output has {whole.size} numbers and {self._item.draw} drew {values.size}; query: "
                    "output needs one value of noise for each number of the output"
                )
            query, noise = whole - values, values
        else:
            query = np.concatenate(self._queries)
            if values.size != query.size:
                raise InputError(
                    f"noise: {self._item.draw} returned {values.size} numbers, and its query {self._item.query!r} has "
                    f"{query.size}"
                )
            noise = values - query
        if not self._scales:
            return query, noise
        scales = np.concatenate(self._scales)
        if not (np.isfinite(scales) & (scales > 0)).all():
            raise InputError(
                f"noise: {self._item.draw} was called with {self._item.scale_argument} of {scales.min():g}"
            )
        return query / scales, noise / scales


def _argument(
    item: NoiseDraw, signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """The argument of a call of a draw that holds the scale."""
    assert item.scale_argument is not None
    if signature is None:  # of a function in C, the arguments that have no name are not known
        if item.scale_argument not in kwargs:
            raise InputError(f"noise: {item.draw} was not called with {item.scale_argument}=…")
        return kwargs[item.scale_argument]
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments[item.scale_argument]


def _numbers(value: Any, what: str) -> Floats:
    try:
        return np.asarray(value, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        raise InputError(f"noise: {what} is no number or array of numbers, but {type(value).__name__}") from None


def _release(recorder: Recorder, item: NoiseDraw, query: Floats, noise: Floats, multiplier: float) -> None:
    scale = item.compared_scale
    match item.law:
        case "laplace":
            recorder.laplace(query, dp_event.LaplaceDpEvent(multiplier), scale=scale, noise=lambda size: noise)
        case "gaussian":
            recorder.gaussian(query, dp_event.GaussianDpEvent(multiplier), scale=scale, noise=lambda size: noise)
        case "discrete_laplace":
            event = dp_event.DiscreteLaplaceDpEvent(1 / scale, scale / multiplier)
            recorder.discrete_laplace(query, event, scale=scale, noise=lambda size: noise)


@contextmanager
def _patched(watched: Sequence[tuple[Draw, Callable[..., Any]]]) -> Iterator[None]:
    """Sends the calls of functions through others while the block runs."""
    before = [
        (holder, name, name in vars(holder), inspect.getattr_static(holder, name)) for (holder, name, _), _ in watched
    ]
    try:
        for (holder, name, function), through in watched:
            setattr(holder, name, _wrapped(function, through))
        yield
    finally:
        for holder, name, own, kept in before:
            if own:
                setattr(holder, name, kept)
            else:  # inherited
                delattr(holder, name)


def _wrapped(function: Callable[..., Any], through: Callable[..., Any]) -> Callable[..., Any]:
    try:
        signature: inspect.Signature | None = inspect.signature(function)
    except (TypeError, ValueError):  # of some functions in C
        signature = None

    def call(*args: Any, **kwargs: Any) -> Any:
        return through(function, signature, *args, **kwargs)

    return call


_NOT_PROVEN = "A guarantee that rests on what does not hold is not proven for this function."
_KINDS = {
    "sensitivity": "the declared sensitivity is exceeded on this pair",
    "noise": "the noise does not have the declared law and scale",
    "steps": "the number of values that get noise depends on the data",
    "output": "the output depends on the data outside of the named draws",
    "control": "the same data and the same noise give another result",
}


def in_words(finding: Finding, manifest: Manifest) -> str:
    """One finding as a sentence."""
    what = _KINDS.get(finding.kind, finding.kind)
    draw = (
        f"{manifest.noise[finding.step].draw}: "
        if finding.step is not None and finding.step < len(manifest.noise)
        else ""
    )
    numbers = [format_number(x) if isinstance(x, float) else x for x in (finding.declared, finding.measured)]
    where = "" if finding.neighbor is None else f", neighbour {finding.neighbor + 1} of {len(manifest.neighbors)}"
    chance = "" if finding.p_value is None else f"; probability if it had: at most {format_p_value(finding.p_value)}"
    return f"{draw}{what}: declared {numbers[0]}, found {numbers[1]}{where}{chance}."


def _as_audit(manifest: Manifest, findings: list[Finding], runs: int) -> AuditResult:
    conclusion = (
        f"What the manifest declares does not hold: {in_words(findings[0], manifest)} {_NOT_PROVEN}"
        if findings
        else "Nothing that the manifest declares was contradicted. That says nothing about other neighbours, arguments "
        "and histories."
    )
    return AuditResult(
        name="record_replay",
        game=f"record and replay: {runs} runs on the data, each replayed on the neighbours of the manifest",
        attack="the queries, the number of draws and the output compared; the noise tested against its declared law",
        statistics=("largest excess over a declared sensitivity", "Kolmogorov–Smirnov test of the noise"),
        conclusion=conclusion,
        trials=runs,
        multiplicity=(
            "all tests of noise together report a finding by chance with probability at most "
            f"{format_p_value(FALSE_ALARM)}",
        ),
        contradictions=tuple(in_words(finding, manifest) for finding in findings),
    )
