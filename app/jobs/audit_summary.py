"""Several audits of one generator on one page, with bounds that hold jointly.

The i-th audit was declared, before its results were seen, to err with probability at most β_i. By the union bound all
of them hold jointly with confidence 1 − Σ β_i, whether or not they are independent. If that is less than the page asks
for, 1 − β, every audit is counted at β_i·β/Σ β_j in place of β_i, and its bounds are computed again: they become
lower. The new levels follow from what was declared and from nothing that was found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound
from dpassay.auditing.canaries.bound import audit_at
from dpassay.auditing.canaries.bound import read_bound as read_canaries
from dpassay.auditing.canaries.files import read_plan as canaries_plan
from dpassay.auditing.files import MANIFEST, PLAN, Claimed, read_json, report_header
from dpassay.auditing.many_runs.bound import bounds_at
from dpassay.auditing.many_runs.bound import read_bound as read_runs
from dpassay.auditing.many_runs.files import read_plan as runs_plan
from dpassay.audits.detection import epsilon_shown
from dpassay.audits.implications import describe
from dpassay.audits.result import AuditResult, no_conclusion
from dpassay.audits.statistics.one_run import epsilon_one_run
from dpassay.audits.verdict import REFUTING_CONFIDENCE, decide, may_refute
from dpassay.base import defaults, validate
from dpassay.base.errors import InputError, input_errors
from dpassay.base.number_format import format_confidence, format_lower, format_number
from dpassay.base.private_files import write_private
from dpassay.base.private_results import output_file
from dpassay.base.progress import Progress
from dpassay.generators.declared.results import AT_ITS_WORD
from dpassay.reports import text
from dpassay.reports.json_form import AuditResult as AuditForm
from dpassay.reports.summary import AuditPart, SummaryDocument, SummaryPlan, render

OF_ONE = "That all audits are of the same generator with the same settings is stated, not checked."
"""What every bound on the page assumes."""

PAGE, DOCUMENT = "summary.html", "summary.json"

_FORM: TypeAdapter[list[AuditResult]] = TypeAdapter(list[AuditForm])
_ROUNDING = 1e-12  # of a sum of a few terms 1 − confidence
_FILES = {"table": "released table", "text": "released texts", "membership": "membership"}


@dataclass(frozen=True, kw_only=True)
class SummarizedAudit:
    """One of the audits.

    Attributes:
        path: of its folder or file.
        kind: what it is, in words.
        claim: that it tested; None for none.
        adjacency, unit: of its bounds.
        declared: the confidence that was declared for all its bounds jointly.
        results: what it found, at that confidence.
        at: its bounds at another confidence, jointly.
    """

    path: Path
    kind: str
    claim: Claimed | None
    adjacency: Adjacency
    unit: Unit
    declared: float
    results: tuple[AuditResult, ...]
    at: Callable[[float], Sequence[Bound]]


@dataclass(frozen=True, kw_only=True)
class AuditSummary:
    """Several audits of one generator; private.

    Attributes:
        audits: in the order in which they were named.
        confidence: that was asked for, of all bounds jointly.
        counted: the confidence at which each audit counts.
        bounds: of each audit, at that confidence.
        document: the content of ``summary.json``.
    """

    audits: tuple[SummarizedAudit, ...]
    confidence: float
    counted: tuple[float, ...]
    bounds: tuple[tuple[Bound, ...], ...]
    document: SummaryDocument

    @property
    def refuted(self) -> bool | None:
        """Whether all bounds together refute the claim; None without a claim or a bound."""
        return self.document.refuted

    @property
    def concluded(self) -> bool:
        """Whether some audit draws a conclusion."""
        return self.document.audit.concluded

    def to_json(self) -> dict[str, Any]:
        """The content of ``summary.json``."""
        return self.document.model_dump(mode="json", by_alias=True)


def audit_summary(
    audits: Sequence[str | Path],
    *,
    output: str | Path,
    confidence: float = defaults.CONFIDENCE,
    progress: Progress | None = None,
) -> AuditSummary:
    """Writes one page about several audits of one generator, ``summary.html``, and ``summary.json``.

    Args:
        audits: every audit that was made of it: folders of planned audits with a bound, and JSON files of audits of
            tables, texts and membership.
        output: the folder of the page; private.
        confidence: with which all bounds hold jointly. If more error was declared, every audit is counted at its
            share.
        progress: where to show progress.

    Returns:
        The audits, and the bounds at the confidence at which they count.

    Raises:
        InputError: if a file is missing, was changed or holds another kind of result, if an audit is named twice, or
            if they do not test one claim.
    """
    shown = progress or Progress()
    with input_errors():
        validate.open_probability(confidence=confidence)
    if not audits:
        raise InputError("there is no audit to summarise; name the folders and files of all audits of the generator")
    paths = [Path(audit) for audit in audits]
    read = []
    with shown.stage("Reading") as step:
        for index, path in enumerate(paths):
            if any(path.resolve() == other.resolve() for other in paths[:index]):
                raise InputError(f"{path}: is named twice; name each audit once")
            read.append(_of_folder(path) if path.is_dir() else _of_file(path))
            step(index + 1, len(paths))
    claim = _one_claim(read)
    counted = shares([audit.declared for audit in read], confidence)
    bounds = tuple(
        tuple(_assuming(bound) for bound in audit.at(level)) for audit, level in zip(read, counted, strict=True)
    )
    folder = Path(output)
    with input_errors():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    page = output_file(paths[0], folder / PAGE, PAGE, paths)
    document = _document(folder, read, claim, confidence, counted, bounds)
    write_private(page, render(document))
    write_private(folder / DOCUMENT, document.model_dump_json(by_alias=True, indent=2) + "\n")
    return AuditSummary(audits=tuple(read), confidence=confidence, counted=counted, bounds=bounds, document=document)


def shares(declared: Sequence[float], confidence: float) -> tuple[float, ...]:
    """The confidence at which each audit counts: as declared if the errors add up to at most 1 − `confidence`, else the
    share of that in proportion to what was declared."""
    errors = [1 - each for each in declared]
    asked, total = 1 - confidence, sum(errors)
    if total <= asked + _ROUNDING:
        return tuple(declared)
    return tuple(1 - error * asked / total for error in errors)


def _of_folder(folder: Path) -> SummarizedAudit:
    """A planned audit, whose bound is computed again from its scores or its runs."""
    if (folder / "private" / MANIFEST).is_file():
        planned = canaries_plan(folder)
        design, result = planned.design, read_canaries(planned)
        return SummarizedAudit(
            path=folder,
            kind="canaries",
            claim=planned.plan.claim,
            adjacency=Adjacency.ADD_REMOVE,
            unit=design.unit,
            declared=design.confidence,
            results=_results([result["audit"]], folder),
            at=lambda level: audit_at(planned, level).bounds,
        )
    if not (folder / "private" / PLAN).is_file():
        raise InputError(
            f"{folder}: holds no planned audit; name the folder of `dpassay audit plan` or `dpassay audit runs plan`, "
            "or the JSON file of another audit"
        )
    runs = runs_plan(folder)
    result = read_runs(runs)
    return SummarizedAudit(
        path=folder,
        kind="many runs",
        claim=runs.plan.claim,
        adjacency=runs.design.adjacency,
        unit=runs.design.unit,
        declared=runs.design.confidence,
        results=_results([result["audit"]], folder),
        at=lambda level: bounds_at(runs, level),
    )


def _of_file(path: Path) -> SummarizedAudit:
    """An audit in a JSON file, which is taken at its word; its bounds are computed again from its counts."""
    body = read_json(path)
    kind = body.get("kind")
    if "manifest_sha256" in body or "plan_sha256" in body:
        raise InputError(f"{path}: is the bound of a planned audit; name its folder")
    if kind not in _FILES:
        raise InputError(
            f"{path}: is no result of `dpassay audit table`, `text` or `membership`; name such a file, or the folder "
            "of a planned audit"
        )
    results = _results(body.get("audits"), path)
    at = _of_membership(results, path) if kind == "membership" else _of_released(results)
    try:
        declared = validate.open_probability(confidence=float(body["confidence"]))
        claim = None if body["claim"] is None else Claimed.model_validate(body["claim"])
        unit = Unit.parse(body["unit"])
        made = at(declared)
    except (KeyError, TypeError, ValueError, IndexError, ValidationError):
        raise InputError(f"{path}: was not written by this version of dpassay; make the audit again") from None
    stated = [bound for result in results for bound in result.bounds]
    if [round(bound.value, 9) for bound in made] != [round(bound.value, 9) for bound in stated]:
        raise InputError(f"{path}: its bounds are not what its counts show; make the audit again")
    return SummarizedAudit(
        path=path,
        kind=_FILES[kind],
        claim=claim,
        adjacency=Adjacency.ADD_REMOVE,
        unit=unit,
        declared=declared,
        results=results,
        at=lambda level: [
            dataclasses.replace(bound, assumptions=(*bound.assumptions, AT_ITS_WORD)) for bound in at(level)
        ],
    )


def _of_released(results: Sequence[AuditResult]) -> Callable[[float], list[Bound]]:
    """The bounds of k attacks on released data, each at 1 − β/k, from the units that were hit."""

    def at(level: float) -> list[Bound]:
        each, bounds = 1 - (1 - level) / len(results), []
        for result in results:
            source, holdout = result.rates[:2]
            for bound in result.bounds:
                m, hits = source.trials + holdout.trials, source.hits + holdout.hits
                bounds.append(_again(bound, m, hits, source.hits, each, each))
        return bounds

    return at


def _of_membership(results: Sequence[AuditResult], path: Path) -> Callable[[float], list[Bound]]:
    """The largest bound of all attempts, each at 1 − β/k."""
    if len(results) != 1:
        raise InputError(f"{path}: holds {len(results)} audits of membership, not one; make the audit again")
    (result,) = results

    def at(level: float) -> list[Bound]:
        attempts = result.details["attempts"]
        if not result.bounds:
            return []
        (bound,), each, m = result.bounds, 1 - (1 - level) / len(attempts), int(result.details["candidates"])
        made = [_again(bound, m, int(one["guesses"]), int(one["correct"]), each, level) for one in attempts]
        ceiling = max(one.ceiling or 0.0 for one in made)
        return [dataclasses.replace(max(made, key=lambda one: one.value), ceiling=ceiling)]

    return at


def _again(bound: Bound, m: int, guesses: int, correct: int, each: float, level: float) -> Bound:
    """The one-run bound of these counts at confidence `each`, which holds jointly with others with `level`."""
    rule: Literal["adaptive", "tight"] = "adaptive" if bound.method == "one_run_adaptive" else "tight"
    made = epsilon_one_run(m, guesses, correct, delta=bound.delta or 0.0, confidence=each, rule=rule)
    return dataclasses.replace(bound, value=made.value, ceiling=made.ceiling, confidence=level)


def _results(content: Any, path: Path) -> tuple[AuditResult, ...]:
    try:
        return tuple(_FORM.validate_python(content))
    except (ValidationError, ValueError, TypeError):
        raise InputError(f"{path}: holds no result of an audit that this version reads") from None


def _one_claim(audits: Sequence[SummarizedAudit]) -> Claimed | None:
    """The claim that all audits test, or those that test one.

    Raises:
        InputError: if two test different claims, or at different units or adjacencies.
    """
    first = next((audit for audit in audits if audit.claim is not None), audits[0])
    for audit in audits:
        if (audit.adjacency, audit.unit) != (first.adjacency, first.unit):
            raise InputError(
                f"{audit.path}: is about {text.neighbours(audit.adjacency, audit.unit)}, and {first.path} about "
                f"{text.neighbours(first.adjacency, first.unit)}; summarise audits of one unit and one adjacency"
            )
        if audit.claim is not None and first.claim is not None and audit.claim != first.claim:
            raise InputError(
                f"{audit.path}: tests {describe(audit.claim.guarantee)}, and {first.path} tests "
                f"{describe(first.claim.guarantee)}; summarise audits of one claim"
            )
    return first.claim


def _assuming(bound: Bound) -> Bound:
    return dataclasses.replace(bound, assumptions=(*bound.assumptions, OF_ONE), private=True)


def _document(
    folder: Path,
    audits: Sequence[SummarizedAudit],
    claim: Claimed | None,
    confidence: float,
    counted: Sequence[float],
    bounds: Sequence[Sequence[Bound]],
) -> SummaryDocument:
    every = [bound for made in bounds for bound in made]
    refuted = None
    if claim is not None and every:
        verdict = decide(claim.guarantee, adjacency=audits[0].adjacency, unit=audits[0].unit, bounds=every)
        refuted = verdict.name == "REFUTED"
    total = sum(1 - audit.declared for audit in audits)
    joint = 1 - sum(1 - level for level in counted)
    combined = AuditResult(
        name="summary",
        game=f"{len(audits)} audits of one generator",
        attack="; ".join(dict.fromkeys(audit.kind for audit in audits)),
        statistics=tuple(dict.fromkeys(bound.method for bound in every)),
        conclusion=_conclusion(audits, claim, bounds, joint, refuted),
        trials=sum(result.trials for audit in audits for result in audit.results),
        bounds=tuple(every),
        multiplicity=tuple(words for audit in audits for result in audit.results for words in result.multiplicity),
    )
    parts = [
        AuditPart(
            name=str(audit.path),
            kind=audit.kind,
            declared=audit.declared,
            counted=level,
            bound=max((bound.value for bound in made), default=None),
            attacks=_attacks(audit.results, made),
            conclusions=[f"{text.method(result.name)}: {result.conclusion}" for result in audit.results],
        )
        for audit, level, made in zip(audits, counted, bounds, strict=True)
    ]
    plan = SummaryPlan(
        adjacency=str(audits[0].adjacency),
        unit=str(audits[0].unit),
        confidence=confidence,
        declared=max(0.0, 1 - total),
        joint=joint,
    )
    return SummaryDocument.model_validate(
        {
            **report_header(folder, claim),
            "plan": plan,
            "parts": parts,
            "refuted": refuted,
            "audit": combined.to_json(),
            "limitations": [
                "All audits of the generator belong on this page. One that was made and left out, for whatever reason, "
                "adds its error to that of the page.",
                OF_ONE,
                "What each audit does not show is on its own page, and in its own file.",
            ],
        }
    )


def _attacks(results: Sequence[AuditResult], bounds: Sequence[Bound]) -> list[str]:
    """The name of the attack behind each bound of an audit; a planned one has one attack, and maybe several bounds."""
    if len(results) == 1:
        return [results[0].name] * len(bounds)
    return [result.name for result in results for _ in result.bounds]


def _conclusion(
    audits: Sequence[SummarizedAudit],
    claim: Claimed | None,
    bounds: Sequence[Sequence[Bound]],
    joint: float,
    refuted: bool | None,
) -> str:
    best = max(
        ((bound, audit) for audit, made in zip(audits, bounds, strict=True) for bound in made),
        key=lambda pair: pair[0].value,
        default=None,
    )
    if best is None or not any(result.concluded for audit in audits for result in audit.results):
        return no_conclusion("none of the audits draws one that bounds ε")
    bound, audit = best
    shown = (
        f"the largest bound, of {audit.kind} ({audit.path.name}), shows {epsilon_shown(bound, joint)} for all audits"
    )
    if claim is None:
        return (
            f"Jointly, {shown}; nothing was claimed." if bound.value else "No audit shows a leak; nothing was claimed."
        )
    claimed = f"the claim of ε = {format_number(claim.epsilon)}"
    if refuted:
        return f"Jointly, {shown}, which refutes {claimed}."
    said = f"Jointly, {shown}, and {claimed} is not refuted; that does not support it."
    if not may_refute(joint):
        said += f" Refuting a claim takes a joint confidence of {REFUTING_CONFIDENCE} or more."
    return said


def in_words(summary: AuditSummary) -> list[str]:
    """What a person reads on the command line."""
    document = summary.document
    lines = [document.asked]
    lines += [
        f"{part.name} ({part.kind}): confidence {format_confidence(part.declared)} was declared, "
        f"{format_confidence(part.counted)} counts; ε ≥ {'–' if part.bound is None else format_lower(part.bound)}"
        for part in document.parts
    ]
    return [*lines, document.audit.conclusion]
