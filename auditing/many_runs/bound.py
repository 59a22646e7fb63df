"""Bounds ε from the runs of a planned audit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpassay import __version__
from dpassay.accounting.bounds import Bound
from dpassay.auditing.files import OF_THE_TIME, Claimed, recomputed_bound, sealed, write_bound
from dpassay.auditing.many_runs.explain import read_explanation
from dpassay.auditing.many_runs.files import PlannedRuns, read_plan
from dpassay.auditing.many_runs.results import ARMS, Results
from dpassay.audits.games.many_runs_halving import usual_pilots
from dpassay.audits.games.many_runs_power import detectable_leak, power
from dpassay.audits.result import AuditResult, refuted_where_concluded
from dpassay.audits.verdict import decide
from dpassay.base.errors import InputError
from dpassay.base.number_format import format_lower
from dpassay.base.private_files import one_process


@dataclass(frozen=True, kw_only=True)
class RunsBound:
    """The result of a planned audit, as in ``bound.json``.

    Attributes:
        planned: the plan.
        refuted: whether the audit refutes the claim; None without a claim, or if there is no conclusion.
        audit: of the generator as it is claimed to be.
        unprotected: the same audit of the generator with its protection off; None if it was not made.
        generator_seconds: that all runs took; 0 if they were made elsewhere.
        explanation: what `run --explain` found; None if it was not asked for. No bound rests on it.
        audited: what was run and where, how often it failed, and the seed of the plan.
    """

    planned: PlannedRuns
    refuted: bool | None
    audit: AuditResult
    unprotected: AuditResult | None
    generator_seconds: float
    audited: Mapping[str, Any]
    explanation: dict[str, Any] | None = None

    @property
    def concluded(self) -> bool:
        """Whether a conclusion is drawn."""
        return self.audit.concluded

    @property
    def claim(self) -> Claimed | None:
        """The planned claim."""
        return self.planned.plan.claim

    @property
    def control(self) -> str:
        """What the positive control shows, in a sentence."""
        if self.unprotected is None:
            if self.refuted:
                return ""
            return (
                "No run without protection was made, so it is not known whether this audit can find a leak of this "
                "generator."
            )
        if self.unprotected.details["exhausted"]:
            return "Without protection, the generator failed in all runs that were tried, so the control shows nothing."
        if not self.unprotected.bounds:
            return "Without protection, the audit is not finished."
        shown = self.unprotected.bounds[0].value
        limit = 0.0 if self.claim is None else self.claim.epsilon
        result = f"With its protection off, the same audit shows ε ≥ {format_lower(shown)}"
        if shown > limit:
            return f"{result}: it can find a leak of this generator."
        return f"{result}, no more than is claimed: that nothing is found with protection on says nothing."

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON types, sealed with ``sha256``."""
        design = self.planned.plan.design(stop=False)  # that of `computed`, whose power is known
        size = design.usual_rounds, usual_pilots(design)  # as the plan says it
        return sealed(
            {
                "schema": 1,
                "dpassay": __version__,
                "plan_sha256": self.planned.sha256,
                "claim": self.claim.model_dump() if self.claim else None,
                "refuted": self.refuted,
                "control": self.control,
                "power": [dataclasses.asdict(item) for item in power(design, *size)],
                "detectable": detectable_leak(design, *size).to_json(),
                "generator_seconds": self.generator_seconds,
                "audited": dict(self.audited),
                "explanation": self.explanation,
                "audit": self.audit.to_json(),
                "unprotected": self.unprotected.to_json() if self.unprotected else None,
            }
        )


def bound(folder: str | Path) -> RunsBound:
    """Bounds ε from the results so far, and writes ``bound.json``; no more runs can be made afterwards.

    Args:
        folder: of the plan.

    Returns:
        Whether the claim is refuted, and the audit with its lower bound and conclusion.

    Raises:
        InputError: if a file is missing or invalid, or no round is finished.
    """
    planned = read_plan(Path(folder))
    with one_process(planned.private):
        result = computed(planned)
        write_bound(planned.folder, result.to_json())
    return result


def read_bound(planned: PlannedRuns) -> dict[str, Any]:
    """The content of ``bound.json``, which is computed again and compared.

    Raises:
        InputError: if there is none, or it is not what the runs of the folder show.
    """

    def shown(document: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in document.items() if key not in OF_THE_TIME}

    result, expected = recomputed_bound(
        planned.folder,
        "dpassay audit runs bound",
        "runs",
        lambda: {"plan_sha256": planned.sha256},
        "belongs to another plan",
        lambda: computed(planned).to_json(),
        shown,
    )
    return {**result, **expected}


def bounds_at(planned: PlannedRuns, confidence: float) -> tuple[Bound, ...]:
    """What the runs of the generator as it is claimed to be show at another confidence than the planned one."""
    return Results(planned).audit("claimed", stop=False).bounds(confidence)


def computed(planned: PlannedRuns) -> RunsBound:
    """The result of the runs on disk."""
    results = Results(planned)
    if not results.by_run:
        raise InputError(f"{planned.folder}: holds no runs; make them with `dpassay audit runs run {planned.folder} …`")
    # Bounds are those of every round that was made, whether or not the run would have stopped before it.
    arms = {arm: results.audit(arm, stop=False).result() for arm in ARMS if results.of(arm)}
    if "claimed" not in arms:
        raise InputError(f"{planned.folder}: holds no runs of the generator as it is claimed to be")
    audit, claim = arms["claimed"], planned.plan.claim
    if not audit.bounds and not audit.details["exhausted"]:
        raise InputError(
            f"{planned.folder}: no round is finished, so nothing was tested; go on with "
            f"`dpassay audit runs run {planned.folder} …` or `score`"
        )
    refuted = None
    if claim is not None:
        design = planned.plan.design()
        verdict = decide(claim.guarantee, adjacency=design.adjacency, unit=design.unit, bounds=audit.bounds)
        refuted = refuted_where_concluded(verdict.name == "REFUTED", audit.concluded)
    return RunsBound(
        planned=planned,
        refuted=refuted,
        audit=audit,
        unprotected=arms.get("unprotected"),
        explanation=read_explanation(planned),
        generator_seconds=sum(results.seconds.values()),
        audited={
            "seed": planned.plan.seed,
            "ended": results.ended,
            "arms": {
                arm: {
                    "generators": [item.model_dump() for item in results.audited.get(arm, [])],
                    "failures": results.failures(arm),
                }
                for arm in arms
            },
        },
    )
