"""An assay as one self-contained HTML page: no script, no network, readable on a phone, in the dark and in print."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import jinja2
from markupsafe import Markup

from dpassay.accounting.bounds import Bound, Direction, Interval, Rigor, Risk
from dpassay.audits import verdict_wording as wording
from dpassay.audits.result import AuditResult
from dpassay.base.number_format import (
    format_difference,
    format_interval,
    format_number,
    format_p_value,
    format_upper,
)
from dpassay.reports import composition, figures, text
from dpassay.reports.assay import Assay, PastVerdict
from dpassay.reports.claim import (
    ClaimedValue,
    best_bound,
    claim_rows,
    claimed,
    output_rows,
    parameters,
    secret_rows,
    secrets_tables,
)
from dpassay.reports.release import Release, ReleasedAudit, releasable
from dpassay.reports.standing import standing, unaudited
from dpassay.reports.svg import Figure

Side = Literal["private", "release"]

_MAX_TABLE_ROWS = 200
_ROUNDED = {"least_p_value": format_p_value, "limit": format_upper}
"""How numbers among the details of audits are rounded; what is not listed, as any number."""

_DETAILS = {
    "coins": "Fair coins",
    "least_p_value": "Smallest possible p-value",
    "p": "Largest prior probability p",
    "rounds": "Rounds",
    "side": "Guesses",
    "values": "Values of the secret",
}
"""Names of details of audits; what is not listed is named by its key."""

_SIDES = {"both": "members and non-members", "in": "members only"}
"""What is guessed in a membership audit."""


@dataclass(frozen=True, slots=True)
class BoundRow:
    """A bound as a line of a table, under the name of its attack, or of its method where that is empty."""

    bound: Bound
    best: bool
    compared: bool
    ends: str
    width: str
    assumptions: tuple[int, ...]
    attack: str = ""


@dataclass(frozen=True, slots=True)
class AuditSection:
    """An audit as the page shows it."""

    audit: AuditResult | ReleasedAudit
    how: tuple[tuple[str, str], ...]
    rows: tuple[BoundRow, ...]
    too_low: str
    errors: tuple[str, ...]
    figure: Figure | None


def render(assay: Assay, *, side: Side, mechanism: str = "") -> str:
    """The report as one HTML page.

    Args:
        assay: the finished assay.
        side: ``private`` for everything; ``release`` for what does not depend on the private data.
        mechanism: what the mechanism does, in words; empty for its name.

    Raises:
        ValueError: for another side.
    """
    match side:
        case "private":
            return _rendered(assay, mechanism)
        case "release":
            return render_release(releasable(assay), mechanism)
        case _:
            raise ValueError(f"side must be private or release, not {side!r}")


def render_release(release: Release, mechanism: str = "") -> str:
    """The page that may be released.

    Args:
        release: which holds nothing else.
        mechanism: as for `render`.
    """
    return _rendered(release, mechanism)


def _rendered(assay: Assay | Release, mechanism: str) -> str:
    """The page of an assay; on the releasable side it is made from a `Release`, which holds nothing else."""
    private = assay if isinstance(assay, Assay) else None
    claim = claimed(assay.claim)
    audits: Sequence[AuditResult | ReleasedAudit] = assay.audits
    of_audits = [row for audit in audits for row in audit.bounds]
    history = private.history if private else []
    earlier = _distinct(row for past in history for audit in past.audits for row in audit.bounds)
    every = _distinct([*assay.bounds, *of_audits])
    assumptions: dict[str, int] = {}
    best = [row for row in _best(assay, claim, every) if row is not None]

    upper = _best(assay, claim, every)[0]
    for words in upper.assumptions if upper is not None else ():  # the first numbers are theirs
        assumptions.setdefault(words, len(assumptions) + 1)

    def row_of(bound: Bound) -> BoundRow:
        numbers = tuple(assumptions.setdefault(words, len(assumptions) + 1) for words in bound.assumptions)
        compared = claim is None or claim.on_scale(bound)
        return BoundRow(bound, bound in best and not math.isinf(bound.value), compared, *_enclosure(bound), numbers)

    verdict = private and private.verdict
    box = standing(assay, upper, assumptions)
    known = wording.reasons_assumed(upper) if upper is not None else []
    page = {
        "side": "private" if private else "release",
        "assay": assay,
        "verdict": verdict,
        "headline": assay.verdict if isinstance(assay, Assay) else assay.headline,
        "sentence": text.in_words(wording.without_name(assay.sentence, verdict) if verdict else assay.sentence),
        "created": date_in_words(assay.created),
        "box": box,
        "alone": unaudited(box.refutable, [*assay.audits, *earlier]) if verdict == "SUPPORTED" else "",
        "reasons": [words for words in private.reasons if words not in known] if private else [],
        "claim_rows": claim_rows(assay.claim, assay.guarantee, mechanism),
        "parameters": parameters(assay.claim),
        "facts": _facts(assay, claim, every),
        "rows": sorted(
            (row_of(bound) for bound in _distinct(assay.bounds) if bound not in of_audits + earlier),
            key=lambda row: not row.best,
        ),
        "evidence": [
            AuditSection(
                audit,
                tuple(how_it_was_done(audit, claim)),
                tuple(row_of(bound) for bound in audit.bounds),
                too_low(audit, claim),
                errors(audit),
                figures.rates(audit, f"rates-{index}") if isinstance(audit, AuditResult) else None,
            )
            for index, audit in enumerate(audits)
        ],
        "earlier": [row_of(bound) for bound in earlier if bound not in of_audits],
        "risks": [] if _contradicted(assay) else [risk_row(item) for item in assay.risks],
        "risks_mean": text.risks_in_words(assay.risks, claim.adjacency, claim.unit) if claim else "",
        "risks_assume": [assumptions.setdefault(words, len(assumptions) + 1) for words in _assumed(assay.risks)],
        "assumptions": list(assumptions),
        "composition": composition.describe(assay.ledger.composition) if assay.ledger.composition else None,
        "scale": claim and figures.claim_and_bounds([_as_weighed(row, assay) for row in every], claim),
        "digests": _digests(assay),
        "secret_rows": secret_rows(assay.secrets) if assay.secrets else [],
        "secrets_tables": secrets_tables(assay.secrets) if assay.secrets else [],
        "output_rows": output_rows(assay.output, assay.unfinished),
        "history": [_past(past) for past in history],
        "history_in_words": private.history_in_words if private else "",
        "tokens": private and figures.tokens(private.tokens),
        "batches": private and figures.batches(private.batches, claim),
        "spent": _shares(private.spent) if private and len(private.spent) > 1 else [],
        "spent_in_one": _spent_in_one(private) if private else [],
    }
    return environment().get_template("report.html.j2").render(page=page)


def risk_row(item: Risk) -> tuple[str, ...]:
    """A number about the best attack as a line of a table: name, bound, rigor, interval."""
    return text.capital(text.risk_name(item)), text.risk_value(item), text.RIGOR[item.rigor], text.risk_interval(item)


def _assumed(items: Sequence[Risk]) -> list[str]:
    """What the numbers assume, each sentence once."""
    return list(dict.fromkeys(words for item in items for words in item.assumptions))


def _past(past: PastVerdict) -> tuple[str, ...]:
    """A verdict on the same run as a line of a table: when, which, on what, audits and their bounds."""
    bounds = [f"{text.method(row.method)}: {text.bound(row)}" for audit in past.audits for row in audit.bounds]
    asked = ", ".join(map(text.method_within, past.asked)) or "none"
    return date_in_words(past.created), past.verdict, past.claimed, asked, "; ".join(bounds) or "none"


def _digests(assay: Assay | Release) -> list[tuple[str, str]]:
    if assay.digests is None:
        return []
    return [("synthetic.jsonl, the documents", assay.digests.documents), ("claim.json", assay.digests.claim)]


def _distinct(rows: Iterable[Bound]) -> list[Bound]:
    out: list[Bound] = []
    for row in rows:
        if row not in out:
            out.append(row)
    return out


def _best(assay: Assay | Release, claim: ClaimedValue | None, rows: Sequence[Bound]) -> list[Bound | None]:
    """The best upper and the best lower bound: those the verdict names, else by comparison."""
    if isinstance(assay, Release):
        return [assay.best_upper, None]
    if claim is None:
        return [assay.best_upper, assay.best_lower]
    return [
        None if _contradicted(assay) else assay.best_upper or best_bound(rows, claim, Direction.UPPER),
        assay.best_lower or best_bound(rows, claim, Direction.LOWER),
    ]


def _contradicted(assay: Assay | Release) -> bool:
    """Whether evidence contradicts the proof; the releasable page must not know."""
    return isinstance(assay, Assay) and bool(assay.contradictions)


def _as_weighed(row: Bound, assay: Assay | Release) -> Bound:
    """A bound as the verdict takes it: where evidence contradicts the proof, upper bounds are estimates."""
    if row.direction is Direction.UPPER and _contradicted(assay):
        return dataclasses.replace(row, rigor=Rigor.ESTIMATE)
    return row


def _enclosure(row: Bound) -> tuple[str, str]:
    """The ends of the enclosure, rounded outward, and its width, rounded up; a dash and nothing where none is known."""
    if row.interval is None:
        return "–", ""
    low, high = row.interval.lower, row.interval.upper
    width = math.inf if math.isinf(high - low) or high == low == math.inf else high - low
    return format_interval(low, high), f"width {format_upper(width, 2)}"


def _facts(assay: Assay | Release, claim: ClaimedValue | None, rows: Sequence[Bound]) -> list[tuple[str, str, str]]:
    """The three numbers of the first screen: claimed, proven, shown. Each with a note."""
    if claim is None:
        return []
    number = format_number(claim.value)
    at = f"at δ = {format_number(claim.delta)}, " if claim.delta is not None else ""
    if claim.at is not None:
        at = f"at {claim.argument} = {format_number(claim.at)}, "
    only = "this output only: " if claim.kind == "ex_post" else ""
    facts = [("Claimed", f"{claim.symbol} ≤ {number}", only + at + text.neighbours(claim.adjacency, claim.unit))]
    upper, lower = _best(assay, claim, rows)
    a_priori = isinstance(assay, Release) and claim.kind == "ex_post"
    label = "Proven a priori" if a_priori else "Proven"
    if isinstance(assay, Release) and not assay.ledger.planned:
        facts.append((label, "withheld", "the events charged differ from the plan"))
    elif _contradicted(assay):
        facts.append((label, "contradicted", wording.CONTRADICTED))
    elif upper is None or upper.value == math.inf:
        facts.append((label, "no finite bound", "no accountant supports the claim"))
    else:
        facts.append((label, text.bound(upper), _certified(upper)))
    if claim.kind == "ex_post" and isinstance(assay, Assay) and not _contradicted(assay):
        facts.append(_a_priori(claim, rows))
    if isinstance(assay, Assay):
        nothing = "no audit bound that can be compared with the claim"
        note = f"{text.method(lower.method)}, {text.rigor(lower)}" if lower is not None else nothing
        facts.append(("Shown by audits", text.bound(lower) if lower is not None else "nothing", note))
    elif assay.audits:
        facts.append(("Shown by audits", "withheld", "audit results depend on the private data"))
    else:
        facts.append(("Shown by audits", "nothing", "no audit was made"))
    return facts


def _certified(upper: Bound) -> str:
    """What a certified bound holds for, and on how many assumptions."""
    only = "this output only: " if upper.quantity == "ex_post_epsilon" else ""
    count = len(upper.assumptions)
    given = f", given {count} assumption{'s' * (count > 1)}" if count else ""
    return f"{only}{text.method(upper.method)}, certified{given}"


def _a_priori(claim: ClaimedValue, rows: Sequence[Bound]) -> tuple[str, str, str]:
    """Beside an ex-post ε, what is proven of every output."""
    best = best_bound((row for row in rows if row.quantity == "epsilon"), claim, Direction.UPPER)
    if best is None or best.value == math.inf:
        return "Proven a priori", "no finite bound", "for every output"
    return "Proven a priori", text.bound(best), f"every output: {_certified(best)}"


def how_it_was_done(audit: AuditResult | ReleasedAudit, claim: ClaimedValue | None) -> list[tuple[str, str]]:
    """How an audit was made, and on the private side what its controls and its p-value say."""
    statistics = "; ".join(text.in_words(name) for name in audit.statistics)
    rows = [("Game", text.capital(audit.game)), ("Attack", text.capital(audit.attack)), ("Statistic", statistics)]
    if isinstance(audit, ReleasedAudit):
        return [*rows, ("Results", "withheld: they depend on the private data")]
    rows.append(("Trials", text.plain(audit.trials)))
    rates = [*audit.rates, *audit.controls]
    if len(rates) == 1:  # more are drawn
        run = figures.AUDITED if audit.rates else figures.CONTROL
        rows.append((f"{text.capital(rates[0].name)}, {run}", figures.rate_in_words(rates[0])))
    if audit.controls_passed is not None:
        failed = "FAILED: no conclusion may be drawn from this audit"
        rows.append(("Controls", "behaved as they should" if audit.controls_passed else failed))
    if audit.difference is not None:
        rows.append((f"Source minus holdout, {figures.AUDITED}", _difference(audit.difference)))
    if audit.control_difference is not None:
        rows.append((f"Source minus holdout, unprotected {figures.CONTROL}", _difference(audit.control_difference)))
    if audit.p_value is not None:
        rows.append(("p-value", f"{format_p_value(audit.p_value)} (no ε follows from it)"))
    if gaussian := audit.details.get("gaussian"):
        rows.append(("In a Gaussian model", str(gaussian["sentence"])))
    if areas := audit.details.get("areas"):
        rows.append(("Area under the curve", "; ".join(_area(name, area) for name, area in areas.items())))
    scalars = {key: value for key, value in audit.details.items() if isinstance(value, str | int | float)}
    for key, value in scalars.items():
        as_it_stands = not isinstance(value, float) or (claim is not None and value == claim.value)  # as elsewhere
        words = text.plain if as_it_stands else _ROUNDED.get(key, text.plain)
        label = _DETAILS.get(key, key.replace("_", " ").capitalize())
        rows.append((label, _SIDES.get(str(value), words(value)) if key == "side" else words(value)))
    return rows


def _area(name: str, area: Mapping[str, Any]) -> str:
    """An area under the curve with its interval, such as ``ngram 0.66, in [0.46, 0.87]``."""
    return f"{name} {format_number(area['value'])}, in {format_interval(*area['interval'])}"


def errors(audit: AuditResult | ReleasedAudit) -> tuple[str, ...]:
    """What went wrong in an audit, a sentence each; nothing of it leaves."""
    if isinstance(audit, ReleasedAudit):
        return ()
    failures = audit.details.get("failures")
    return audit.contradictions + (tuple(map(str, failures)) if isinstance(failures, list | tuple) else ())


def too_low(audit: AuditResult | ReleasedAudit, claim: ClaimedValue | None) -> str:
    """Says that an audit could not have refuted the claim, where all its ceilings are at most the claim."""
    ceilings = [
        (row.ceiling, row)
        for row in audit.bounds
        if claim is not None and claim.counts(row) and row.direction is Direction.LOWER and row.ceiling is not None
    ]
    highest, row = max(ceilings, key=lambda pair: pair[0], default=(math.inf, None))
    if claim is None or row is None or highest > claim.value:
        return ""
    return wording.too_low(row, claim.value)


def _difference(interval: Interval) -> str:
    """The interval of a difference of two rates, and whether it contains 0."""
    zero = "contains" if 0 in interval else "excludes"
    return f"{format_difference(interval.lower, interval.upper)}, which {zero} 0"


def _spent_in_one(assay: Assay) -> list[str]:
    """Sentences in place of charts with a single bar."""
    stages = [f"{text.capital(stage)}: ε = {format_upper(value)}." for stage, value in assay.spent.items()]
    sentences = [
        *(stages if len(stages) == 1 else []),
        figures.one_batch(assay.batches),
        figures.one_token(assay.tokens),
    ]
    return [sentence for sentence in sentences if sentence]


def _shares(spent: dict[str, float]) -> list[tuple[str, str, float]]:
    """Stage, ε in words, share of the largest in percent."""
    largest = max((value for value in spent.values() if math.isfinite(value)), default=0.0)
    return [
        (stage, format_upper(value), 100.0 * min(value / largest, 1.0) if largest > 0 else 0.0)
        for stage, value in sorted(spent.items(), key=lambda item: -item[1])
    ]


def date_in_words(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return created
    if moment.tzinfo is None:
        return f"{moment.day} {moment:%B %Y, %H:%M}"
    moment = moment.astimezone(UTC)
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"


def _css(words: str) -> Markup:
    """A text inside of a quoted string of a style sheet."""
    plain = "".join(
        c if c.isascii() and (c.isalnum() or c in " .,:_-") else f"\\{ord(c):x} " for c in text.clean(words)
    )
    return Markup(plain)


@functools.cache
def environment() -> jinja2.Environment:
    """The templates with their filters; made once, because a template is compiled when it is first used."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dpassay.reports", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: text.tied(text.clean(value)) if type(value) is str else value,
    )
    environment.filters |= {
        "number": format_number,
        "plain": text.plain,
        "bound": text.bound,
        "ceiling": text.ceiling,
        "argument": text.argument,
        "method": text.method,
        "rigor": text.rigor,
        "neighbours": text.neighbours,
        "in_words": text.in_words,
        "glossary": text.glossary,
        "svg": Markup,
        "css": _css,
    }
    environment.globals |= {"most_table_rows": _MAX_TABLE_ROWS, "wording": wording}
    return environment
