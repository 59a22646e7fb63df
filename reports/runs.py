"""The document and the page of an audit by many runs: claim, neighbours, search, test, power, control, limits."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Final

from pydantic import Field

from dpassay.audits import result
from dpassay.audits.games.many_runs import power_in_words
from dpassay.base.number_format import (
    format_confidence,
    format_lower,
    format_percent,
)
from dpassay.reports import audit_page, figures, text
from dpassay.reports.assay import DocumentPart
from dpassay.reports.audit_page import AuditDocument, AuditPlan
from dpassay.reports.html import how_it_was_done
from dpassay.reports.json_form import AuditResult, Detectable
from dpassay.reports.svg import Figure

_DIGITS: Final = 3  # of numbers that are simulated or estimated


class Neighbors(DocumentPart):
    """A pair of neighbouring data sets; no record of them."""

    name: str
    differs: str = Field(default="", description="what D is, and what D′ has in addition, in a sentence")
    finds: str = Field(description="the faults that it aims at")


class ColumnUse(DocumentPart):
    """What was understood of a column of the data."""

    name: str
    kind: str
    form: str = Field(description="how its numbers or dates are written; empty for words")
    missing: int
    distinct: int = Field(description="at most 10 000 are counted")
    used: bool
    why: str = Field(description="as what it is used, or why it is left alone")
    warnings: list[str]


class ManyRunsPlan(AuditPlan):
    """What was fixed before the first run."""

    pairs: list[Neighbors]
    runs: int = Field(description="the most, those of the search included")
    pilots: int = Field(description="the most that the search may use")
    most_rounds: int = Field(description="of the test, if the search uses all its runs")
    failures: bool = Field(description="whether pairs are tested on whose D′ every pilot run fails")
    plan_sha256: str
    written: str = Field(default="", description="how the data are written; empty for plans of earlier versions")
    columns: list[ColumnUse] = Field(default_factory=list, description="empty for plans of earlier versions")


class PlannedPower(DocumentPart):
    """What the planned test shows of a generator that leaks in a known way."""

    leak: str
    chance: float = Field(description="with which the claim is refuted, or without a claim ε > 0 is shown")
    median: float = Field(description="of the bound")


class RunsAudit(AuditDocument):
    """An audit of a generator by many runs on neighbouring data sets (`report.json`)."""

    plan: ManyRunsPlan
    power: list[PlannedPower]
    detectable: Detectable = Field(description="the smallest leaks that the planned test detects with 50 % power")
    ceilings: list[tuple[int, float]] = Field(description="after so many rounds, the most that can have been shown")
    generator_seconds: float = Field(description="that all runs took; 0 if they were made elsewhere")
    control: str = Field(description="what the generator shows with its protection off, in a sentence")
    unprotected: AuditResult | None = Field(description="the same audit with protection off; null if it was not made")


def render(document: RunsAudit) -> str:
    """The result as one self-contained HTML page."""
    return audit_page.render(
        "runs.html.j2",
        document,
        nothing="no pair was tested",
        ceiling="had every round told D and D′ apart",
        tested=_tested(document),
        plan_rows=_plan_rows(document),
        column_rows=[
            (column.name, column.kind, column.form or "–", str(column.missing), str(column.distinct), _use(column))
            for column in document.plan.columns
        ],
        power_rows=[
            (text.capital(item.leak), format_percent(item.chance), f"ε ≥ {format_lower(item.median)}")
            for item in document.power
        ],
        half=power_in_words(document.detectable),
        size=_size(document),
        search_rows=_search_rows(document),
        how=_how(document),
        event_rows=_event_rows(document.audit),
        rounds=_rounds(document),
        rates=figures.rates(_with_control(document), "rates"),
        control_rows=_control_rows(document),
    )


def _use(column: ColumnUse) -> str:
    """What is done with a column, and what is odd about it."""
    use = text.capital(column.why) if column.used else f"Left alone: {column.why}"
    return ". ".join((use, *map(text.capital, column.warnings)))


def _tested(document: RunsAudit) -> Neighbors | None:
    """The pair that was tested; None if the search chose none."""
    name = document.audit.details.get("tested", {}).get("pair")
    return next((pair for pair in document.plan.pairs if pair.name == name), None)


def _plan_rows(document: RunsAudit) -> list[tuple[str, str]]:
    plan = document.plan
    rounds = f"{plan.most_rounds} rounds of two"
    failing = "tested like others" if plan.failures else "left out of the test, and named below"
    return [
        ("Neighbouring data", text.adjacency(plan.adjacency, plan.unit)),
        *((("The data", text.capital(plan.written)),) if plan.written else ()),
        ("Pairs of neighbours", f"{len(plan.pairs)}, one of which is tested"),
        ("Runs", f"at most {plan.runs}: up to {plan.pilots} for the search, {rounds} or more for the test"),
        ("Pairs on which the generator fails", failing),
        ("Confidence", format_confidence(plan.confidence)),
        ("SHA-256 of the plan", plan.plan_sha256),
    ]


def _size(document: RunsAudit) -> str:
    """That the numbers are for another number of rounds than was planned, in a sentence; empty if they are not."""
    planned = document.plan.most_rounds
    left = int(document.audit.details.get("most_rounds", planned))
    if left == planned:
        return ""
    return (
        f"The search left {left} rounds for the test. These numbers are for as many; those that were printed with the "
        f"plan are for {planned}."
    )


def _search_rows(document: RunsAudit) -> list[tuple[str, ...]]:
    """Every planned pair: the tested one first, then those that were compared longest."""
    details = document.audit.details
    compared = {str(item["pair"]): item for item in details.get("search", [])}
    failing, tested = set(details.get("failing", [])), _tested(document)

    def order(pair: Neighbors) -> tuple[bool, int, float]:
        outcome = compared.get(pair.name)
        if outcome is None:
            return True, 0, math.inf
        estimate = -math.inf if outcome["estimate"] is None else float(outcome["estimate"])
        return pair != tested, -int(outcome["runs_on_data"]), -estimate

    def row(pair: Neighbors) -> tuple[str, ...]:
        outcome = compared.get(pair.name)
        if outcome is None:
            return pair.name, pair.finds, "–", "–", "not tried: too few runs"
        if pair.name in failing:
            event = f"all pilot runs on {outcome['failing_on']} failed"
        elif outcome["feature"] is None:
            event = "–"
        else:
            event = _event(outcome)
        estimate = "–" if outcome["estimate"] is None else format_lower(outcome["estimate"], _DIGITS)
        return pair.name, pair.finds, f"{outcome['runs_on_data']} + {outcome['runs_on_neighbor']}", estimate, event

    return [row(pair) for pair in sorted(document.plan.pairs, key=order)]


def _event(outcome: Any) -> str:
    return str(outcome["event"])


def _event_rows(audit: result.AuditResult) -> list[tuple[str, str]]:
    """The events of the test, with the rounds in which each was counted."""
    rows: list[tuple[int, int, str]] = []
    events = audit.details.get("events", [])
    ends = [int(item["from_round"]) for item in events[1:]] + [int(audit.details.get("rounds", 0))]
    for item, end in zip(events, ends, strict=False):
        start, words = int(item["from_round"]) + 1, _event(item)
        if rows and rows[-1][2] == words:
            start = rows.pop()[0]
        rows.append((start, end, words))
    return [(f"Rounds {start} to {end}", words) for start, end, words in rows if end >= start]


def _how(document: RunsAudit) -> list[tuple[str, str]]:
    """How the test was done; of the details, those that are shown nowhere else."""
    audit, details = document.audit, document.audit.details
    kept: dict[str, Any] = {key: details[key] for key in ("rounds", "most_rounds", "stopped") if key in details}
    failed = details.get("failures", {"on_data": 0, "on_neighbor": 0})
    if any(failed.values()):
        kept["runs_that_failed"] = f"{failed['on_data']} on D and {failed['on_neighbor']} on D′, counted like any other"
    if document.generator_seconds:
        kept["seconds_of_the_generator"] = round(document.generator_seconds)
    statistics = tuple(map(text.method, audit.statistics))
    return how_it_was_done(dataclasses.replace(audit, details=kept, statistics=statistics), document.claimed)


def _with_control(document: RunsAudit) -> result.AuditResult:
    """The audit with the counts of the unprotected generator as its controls."""
    if document.unprotected is None:
        return document.audit
    controls = tuple(
        dataclasses.replace(rate, name=f"{rate.name}, protection off") for rate in document.unprotected.rates
    )
    return dataclasses.replace(document.audit, controls=controls)


def _rounds(document: RunsAudit) -> Figure | None:
    unprotected = document.unprotected.details if document.unprotected is not None else {}
    return figures.rounds(
        document.audit.details.get("bounds_by_round", []),
        unprotected.get("bounds_by_round", []),
        document.ceilings,
        document.claimed,
    )


def _control_rows(document: RunsAudit) -> list[tuple[str, str]]:
    """What the same audit shows of the generator without its protection."""
    audit = document.unprotected
    if audit is None:
        return []
    rows = [("Conclusion", text.in_words(audit.conclusion))]
    rows += [("Shown", text.bound(bound)) for bound in audit.bounds]
    return rows + [(text.capital(rate.name), figures.rate_in_words(rate)) for rate in audit.rates]
