"""`dpassay audit mechanism`: records the noise of a library's function, and replays it on neighbours of the data."""

from __future__ import annotations

import importlib.metadata
import inspect
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
            "limitations": list(LIMITS),
            "audit": self.audit.to_json(),
        }

    def in_words(self) -> list[str]:
        """The result in sentences: what was run, what was found, and what such an audit can show."""
        manifest = self.manifest
        drawn = ", ".join(f"{number} of {draw}" for draw, number in self.values.items())
        return [
            f"{manifest.call} of {manifest.library} {self.version}: {self.runs} recorded runs, each replayed on "
            f"{len(manifest.neighbors)} neighbours ({manifest.adjacency}); values of noise in a run: {drawn}.",
            *(in_words(finding, manifest) for finding in self.findings),
            _NOT_PROVEN if self.findings else self.audit.conclusion,
            *LIMITS,
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
        *_, function = located(read.call, "call")
        draws = [located(item.draw, f"noise.{index}.draw") for index, item in enumerate(read.noise)]
        for index, (item, (*_, drawing)) in enumerate(zip(read.noise, draws, strict=True)):
            _check_query(item, drawing, index)
        mechanism = _Adapted(read, function, draws)
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


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        raise InputError(
            f"library: no distribution {library!r} is installed; give the name that pip shows, as in pip install"
        ) from None


def _check_query(item: NoiseDraw, drawing: Callable[..., Any], index: int) -> None:
    if item.query == OUTPUT:
        return
    try:
        names = list(inspect.signature(drawing).parameters)
    except (TypeError, ValueError):
        names = []
    if item.query not in names:
        known = ", ".join(name for name in names if name != "self") or "not known"
        raise InputError(
            f"noise.{index}.query: {item.draw} has no argument {item.query!r}; its arguments are {known}; or "
            f"{OUTPUT}, if it returns noise alone"
        )


class _Adapted:
    """The library's function as a mechanism under test: all calls of a draw in a run are one step of the recorder."""

    def __init__(
        self, manifest: Manifest, function: Callable[..., Any], draws: list[tuple[Any, str, Callable[..., Any]]]
    ) -> None:
        self._manifest, self._function, self._draws = manifest, function, draws
        self._drawn: dict[int, list[list[Any]]] = {}  # what each draw returned, by the first step of a recording
        self.values: dict[str, int] = {}

    def __call__(self, data: Any, recorder: Recorder) -> Any:
        manifest = self._manifest
        past = None if recorder.past is None else self._drawn[id(recorder.past.steps[0].value)]
        calls = [_Calls(item, None if past is None else past[number]) for number, item in enumerate(manifest.noise)]
        with _patched(self._draws, calls):
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
            if not made.returned:
                raise InputError(f"noise: {manifest.call} does not call {item.draw}; name the function that it calls")
            query, noise = made.query_and_noise(output)
            self.values.setdefault(item.draw, query.size)
            _release(recorder, item, query, noise, event_multiplier(item, manifest.relation))
        if recorder.past is None:
            self._drawn[id(recorder.steps[0].value)] = [made.returned for made in calls]
        return None if manifest.noise[0].query == OUTPUT else output


class _Calls:
    """The calls of one draw during a run; with `past`, they return what they returned in the recorded run."""

    def __init__(self, item: NoiseDraw, past: list[Any] | None) -> None:
        self._item = item
        self._past = past
        self.returned: list[Any] = []
        self._queries: list[Floats] = []

    def made(self, drawing: Callable[..., Any], signature: inspect.Signature | None, *args: Any, **kwargs: Any) -> Any:
        if self._item.query != OUTPUT:
            assert signature is not None
            query = signature.bind(*args, **kwargs).arguments.get(self._item.query)
            self._queries.append(_numbers(query, f"the query of {self._item.draw}"))
        number = len(self.returned)
        known = self._past is not None and number < len(self._past)
        result = self._past[number] if known and self._past is not None else drawing(*args, **kwargs)
        self.returned.append(result)
        return result

    def query_and_noise(self, output: Any) -> tuple[Floats, Floats]:
        """All queries of the run, and the noise that was added to them."""
        values = np.concatenate([_numbers(item, f"what {self._item.draw} returns") for item in self.returned])
        if self._item.query == OUTPUT:
            whole = _numbers(output, "the output")
            if whole.size != values.size:
                raise InputError(
                    f"noise: the output has {whole.size} numbers and {self._item.draw} drew {values.size}; query: "
                    "output needs one value of noise for each number of the output"
                )
            return whole - values, values
        query = np.concatenate(self._queries)
        if values.size != query.size:
            raise InputError(
                f"noise: {self._item.draw} returned {values.size} numbers, and its query {self._item.query!r} has "
                f"{query.size}"
            )
        return query, values - query


def _numbers(value: Any, what: str) -> Floats:
    try:
        return np.asarray(value, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        raise InputError(f"noise: {what} is no number or array of numbers, but {type(value).__name__}") from None


def _release(recorder: Recorder, item: NoiseDraw, query: Floats, noise: Floats, multiplier: float) -> None:
    match item.law:
        case "laplace":
            recorder.laplace(query, dp_event.LaplaceDpEvent(multiplier), scale=item.scale, noise=lambda size: noise)
        case "gaussian":
            recorder.gaussian(query, dp_event.GaussianDpEvent(multiplier), scale=item.scale, noise=lambda size: noise)
        case "discrete_laplace":
            event = dp_event.DiscreteLaplaceDpEvent(1 / item.scale, item.scale / multiplier)
            recorder.discrete_laplace(query, event, scale=item.scale, noise=lambda size: noise)


@contextmanager
def _patched(draws: list[tuple[Any, str, Callable[..., Any]]], calls: list[_Calls]) -> Iterator[None]:
    """Sends the calls of all draws through their records while the block runs."""
    own = [name in vars(holder) for holder, name, _ in draws]
    before = [inspect.getattr_static(holder, name) for holder, name, _ in draws]
    try:
        for (holder, name, drawing), made in zip(draws, calls, strict=True):
            setattr(holder, name, _wrapped(drawing, made))
        yield
    finally:
        for (holder, name, _), kept, there in zip(draws, before, own, strict=True):
            if there:
                setattr(holder, name, kept)
            else:  # inherited
                delattr(holder, name)


def _wrapped(drawing: Callable[..., Any], made: _Calls) -> Callable[..., Any]:
    try:
        signature: inspect.Signature | None = inspect.signature(drawing)
    except (TypeError, ValueError):  # of some functions in C
        signature = None

    def call(*args: Any, **kwargs: Any) -> Any:
        return made.made(drawing, signature, *args, **kwargs)

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
    where = "" if finding.neighbor is None else f", neighbour {finding.neighbor}"
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
        game=f"record and replay: {runs} runs on the data, each replayed on neighbours under {manifest.adjacency}",
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
