"""The document and the page of an audit by many runs: claim, neighbours, search, test, power, control, limits."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Final

from pydantic import Field

from dpassay.audits import result
from dpassay.audits.games.many_runs_power import power_in_words
from dpassay.base.number_format import (
    format_confidence,
    format_lower,
    format_percent,
)
from dpassay.reports import audit_page, figures, text
from dpassay.reports.assay import DocumentPart
from dpassay.reports.audit_page import AuditDocument, AuditPlan
from dpassay.reports.html import date_in_words, how_it_was_done
from dpassay.reports.json_form import AuditResult, Detectable
from dpassay.reports.svg import Figure

_LITTLE: Final = 0.05  # of the wealth, in one round
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
    own: bool = Field(default=False, description="whether the user gave the pair; no other is tested then")
    runs: int = Field(description="the most, those of the search included")
    pilots: int = Field(description="the most that are not bet on")
    most_rounds: int = Field(description="of two runs that are bet on; by halving, if the search uses all its runs")
    usual_rounds: int | None = Field(
        default=None, description="rounds on one pair for which chances are stated; in earlier versions `most_rounds`"
    )
    halving: bool = Field(default=True, description="whether pilot runs chose the pair, as in version 0.2")
    failures: bool = Field(description="whether pairs are tested on whose D′ every run fails")
    plan_sha256: str
    written: str = Field(default="", description="how the data are written; empty for plans of earlier versions")
    columns: list[ColumnUse] = Field(default_factory=list, description="empty for plans of earlier versions")


class DigestedFile(DocumentPart):
    """A file that a command names, as it was typed."""

    file: str
    sha256: str


class StartedGenerator(DocumentPart):
    """How a generator was run, from one start of the runs on."""

    command: str = Field(description="as it was typed; empty if runs were made elsewhere")
    files: list[DigestedFile]
    takes_seed: bool = Field(description="whether each run was given a seed of its own")
    versions: dict[str, str] = Field(description="of the audit; a command may run with others")
    generator_versions: dict[str, str] = Field(
        default_factory=dict, description="of a command that is a Python and scripts, and of what they import"
    )
    machine: str = Field(description="empty if runs were made elsewhere")
    workers: int
    timeout: float = Field(description="of a run, in seconds")
    started: str = Field(description="ISO 8601, UTC")


class CountedRuns(DocumentPart):
    """Runs that were made, and how many of them failed."""

    made: int
    failed: int


class AuditedArm(DocumentPart):
    """A generator, with its protection or without."""

    generators: list[StartedGenerator] = Field(description="one for each start; empty for runs of earlier versions")
    failures: dict[str, CountedRuns] = Field(description="of pilot runs and of those of the test")


class Audited(DocumentPart):
    """What was audited."""

    seed: int = Field(description="of the plan, from which each run has its own")
    ended: str = Field(description="when the runs had ended, ISO 8601, UTC; empty if it is not known")
    arms: dict[str, AuditedArm] = Field(description="claimed, and unprotected if it was run")


class ExplainedColumn(DocumentPart):
    """How often the event happened with the target's value in one column alone; without a column, with none."""

    column: str
    hits: int
    carries: bool = Field(description="whether that is nearer to the rate on D′ than to that on D")


class RunsExplanation(DocumentPart):
    """What further runs say of the cause. No bound counts them."""

    event: str
    runs_each: int
    ordinary: ExplainedColumn = Field(description="an ordinary record in the place of the target")
    columns: list[ExplainedColumn]
    left_out: int = Field(description="columns that were not tried")
    says: str = Field(description="in sentences")


class PlannedPower(DocumentPart):
    """What the planned test shows of a generator that leaks in a known way."""

    leak: str
    chance: float = Field(description="with which the claim is refuted, or without a claim ε > 0 is shown")
    median: float = Field(description="of the bound")


class RunsAudit(AuditDocument):
    """An audit of a generator by many runs on neighbouring data sets (`report.json`)."""

    plan: ManyRunsPlan
    audited: Audited
    explanation: RunsExplanation | None = Field(default=None, description="null if it was not asked for")
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
        ceiling="no rounds show more",
        tested=_tested(document),
        plan_rows=_plan_rows(document),
        audited_rows=_audited_rows(document),
        explanation_rows=_explanation_rows(document.explanation),
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
    if plan.halving:
        used = f"up to {plan.pilots} for the search, {plan.most_rounds} rounds of two or more for the test"
    else:
        rounds = f"up to {plan.most_rounds} rounds of two, one on D and one on D′"
        used = f"{plan.pilots} for a probe, {rounds}" if plan.pilots else rounds
    failing = "tested like others" if plan.failures else "left out, and named below"
    pairs = "one, the user's own" if plan.own else f"{len(plan.pairs)}, of which each round tests one"
    return [
        ("Neighbouring data", text.adjacency(plan.adjacency, plan.unit)),
        *((("The data", text.capital(plan.written)),) if plan.written else ()),
        ("Pairs of neighbours", pairs),
        ("Runs", f"at most {plan.runs}: {used}"),
        ("Pairs on which the generator fails", failing),
        ("Confidence", format_confidence(plan.confidence)),
        ("SHA-256 of the plan", plan.plan_sha256),
    ]


def _audited_rows(document: RunsAudit) -> list[tuple[str, str]]:
    """What was run, where and when, and how often it failed."""
    rows: list[tuple[str, str]] = []
    for arm, audited in document.audited.arms.items():
        what = "" if arm == "claimed" else ", without protection"
        last = audited.generators[-1] if audited.generators else None
        if last is not None:
            rows.append((f"Generator{what}", last.command or "runs were made elsewhere"))
            rows += [(f"SHA-256 of {file.file}{what}", file.sha256) for file in last.files]
            versions = ", ".join(f"{name} {version}" for name, version in last.generator_versions.items())
            rows += [(f"Versions{what}", versions)] if versions else []
            rows.append((f"Time{what}", _time(audited, document.audited.ended)))
            machines = dict.fromkeys(item.machine for item in audited.generators if item.machine)
            rows += [(f"Machine{what}", machine) for machine in machines]
        counts = [f"{item.failed} of {item.made} {phase} runs" for phase, item in audited.failures.items() if item.made]
        rows.append((f"Failed{what}", ", ".join(counts) or "no run was made"))
    rows.append(("Seeds", _seeds(document.audited)))
    return rows


def _explanation_rows(explanation: RunsExplanation | None) -> list[tuple[str, str]]:
    if explanation is None:
        return []
    tried = [("an ordinary record", explanation.ordinary)]
    tried += [(f"with the target's {item.column}", item) for item in explanation.columns]
    return [(words, f"the event in {item.hits} of {explanation.runs_each} runs") for words, item in tried]


def _time(audited: AuditedArm, ended: str) -> str:
    start = date_in_words(audited.generators[0].started)
    again = len(audited.generators) - 1
    resumed = f", resumed {again} time{'s'[: again != 1]}" if again else ""
    return f"{start}{f' to {date_in_words(ended)}' if ended else ''}{resumed}"


def _seeds(audited: Audited) -> str:
    """Whether runs were given seeds."""
    from_plan = (
        f"the plan's seed, {audited.seed}, gives each run a seed of its own, and the runs of a round their order"
    )
    claimed = audited.arms["claimed"].generators if "claimed" in audited.arms else []
    if claimed and not claimed[-1].takes_seed:
        return f"the command takes none; {from_plan}"
    return from_plan


def _size(document: RunsAudit) -> str:
    """That the numbers are for another number of rounds than was planned, in a sentence; empty if they are not."""
    planned = document.plan.most_rounds
    if not document.plan.halving:
        usual = document.plan.usual_rounds or planned
        words = f"These numbers are for {usual} rounds on one pair; the others may be on other pairs."
        return "" if usual == planned else words
    left = int(document.audit.details.get("most_rounds", planned))
    if left == planned:
        return ""
    return (
        f"These numbers are for the {planned} rounds that the plan counted on. The search left {left}; what these "
        "detect is said with the result."
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
            why = "too few runs" if pair.name in details.get("untried", []) else "the test had ended"
            return pair.name, pair.finds, "–", "–", f"not tried: {why}"
        if pair.name in failing:
            event = f"all runs on {outcome['failing_on']} failed"
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
    """On what the rounds were bet, with their numbers."""
    details = audit.details
    chosen = [(int(item["from_round"]), _event(item)) for item in details.get("events", [])]
    chosen += [(int(item["from_round"]), _bets(item)) for item in details.get("bets", [])]
    ends = [start for start, _ in chosen[1:]] + [int(details.get("rounds", 0))]
    rows: list[tuple[int, int, str]] = []
    for (start, words), end in zip(chosen, ends, strict=False):
        first = start + 1
        if rows and rows[-1][2] == words:
            first = rows.pop()[0]
        rows.append((first, end, words))
    return [
        (f"Rounds {start} to {end}" if end > start else f"Round {start}", words)
        for start, end, words in rows
        if end >= start
    ]


def _bets(item: Any) -> str:
    """The pair of some rounds, and the event that most was bet on, where that is anything to speak of."""
    largest = max(item["bets"], key=lambda bet: float(bet["share"]), default=None)
    if largest is None or largest["share"] < _LITTLE:
        return f"{item['pair']}: little or nothing was bet"
    return f"{item['pair']}: most on {'' if largest.get('by_levels') else 'that '}{largest['event']}"


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
