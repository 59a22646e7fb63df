"""Published claims and what was found, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dpassay.base.number_format import format_interval, format_lower, format_number, format_upper
from dpassay.claims.published.registry import CheckedClaim
from dpassay.claims.published.statement import source_in_words

_PAGE = """# Published claims, checked

Which statements about privacy, in papers and in libraries, hold? This page lists the statements that were checked. Each
is read as "a quantity is at most a number", and `dpassay claims` computes the quantity anew:

- **REFUTED**: a counterexample, such as two neighbouring data sets or an adversary, or a proven computation shows that
  it is larger.
- **SUPPORTED**: the quantity is proven to be at most the published number. Sound statements are listed, too.
- **UNPROVEN**: neither, for the case that is named.

Recomputed numbers are rounded outward, to six digits. Words and signs of the rows:

- *Neighbours by* add_remove: a record is added or removed; by replace_one: exchanged for another; by zero_out:
  exchanged for a null record; by secret: a data set with the secret, and a reference without it.
- *ε (ex post)*: the logarithm of how much more probable the released output is under one of two neighbours than under
  the other. It says nothing about other outputs ([ex-post](ex-post.md)).
- Rows 000: *γ* is the cost that the paper computes for a token from the median of a batch, *c* the clipping bound of
  logits, and *τ* the temperature. Of a batch of even size, the *right-median* is the larger of the two middle values.
- Rows 000-5, 000-6: a selection has *bounded range* η if log-ratios of its probabilities under two neighbours differ
  by at most η between any two candidates ([selection](selection.md)).
- Rows 001: *B(p)* is the largest probability that the release with the secret gives to an event to which the release
  without it gives at most p ([secret protection](secret-protection.md)).

Some rows go beyond what their source claims, such as a theorem used under another neighbouring relation, and say so. A
refuted statement says something about that statement, and often about one misprint or one constant in it. It does not
say that a paper is wrong as a whole, or that a particular run leaked.

`dpassay claims 000-4 --explain` prints the same content as a section below. This page is the output of
`dpassay claims --markdown`, and a test checks that it is. To add a row, write a file in `examples/claims/published` and
its check in `claims/published`.
"""


BEYOND = "The source does not claim this case; the row is about a use of its result."


def published(result: CheckedClaim) -> str:
    """The published number."""
    return format_number(result.claimed)


def recomputed(result: CheckedClaim) -> str:
    """What is proven: the bound that decides, or else both."""
    lower, upper = result.finding.lower, result.finding.upper
    if result.verdict == "REFUTED":
        return f"≥ {format_lower(lower)}"
    if result.verdict == "SUPPORTED" or lower is None:
        return "–" if upper is None else f"≤ {format_upper(upper)}"
    return f"≥ {format_lower(lower)}" if upper is None else format_interval(lower, upper)


def explained(result: CheckedClaim) -> str:
    """A claim, and the counterexample or the proof step by step."""
    claim = result.claim
    lines = [
        f"{claim.id}: {result.verdict}",
        f"Statement: {claim.statement}",
        f"Source: {source_in_words(claim.source)}",
        f"Published: {claim.quantity} ≤ {published(result)}; recomputed: {recomputed(result)}",
        *([] if claim.adjacency is None else [f"Neighbours: {claim.adjacency}"]),
        *([BEYOND] if claim.beyond_source else []),
        *([f"Note: {claim.note}"] if claim.note else []),
        *(f"{number}. {step}" for number, step in enumerate(result.finding.steps, 1)),
    ]
    if not result.as_recorded:
        lines.append(f"NOT AS RECORDED: the file says {claim.recorded}")
    return "\n".join(lines)


def summary(result: Sequence[CheckedClaim]) -> str:
    """How many of which verdict, and which are not as recorded."""
    count = Counter(item.verdict for item in result)
    beyond = sum(item.verdict == "REFUTED" and item.claim.beyond_source for item in result)
    aside = f" ({beyond} of them beyond what the source claims)" if beyond else ""
    parts = ", ".join(f"{number} {name}{aside if name == 'REFUTED' else ''}" for name, number in sorted(count.items()))
    others = [item.claim.id for item in result if not item.as_recorded]
    said = f"NOT as recorded: {', '.join(others)}" if others else "all as recorded"
    return f"{len(result)} published claim{'s' if len(result) != 1 else ''}: {parts}; {said}."


def page(result: Sequence[CheckedClaim]) -> str:
    """A page of documentation on these claims, in Markdown."""
    rows = ["| id | statement | verdict | published | recomputed |", "| --- | --- | --- | --- | --- |"]
    for item in result:
        cells = (
            f"[{item.claim.id}](#{item.claim.id.replace('.', '')})",
            _cell(item.claim.statement),
            item.verdict,
            f"{_cell(item.claim.quantity)} ≤ {published(item)}",
            recomputed(item),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([_PAGE, *rows, "", summary(result), "", *(_section(item) for item in result)]).rstrip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _section(result: CheckedClaim) -> str:
    claim = result.claim
    lines = [
        f"## {claim.id}",
        "",
        f"{claim.statement} ({source_in_words(claim.source)})",
        "",
        f"**{result.verdict}**: {claim.quantity}, published {published(result)}, recomputed {recomputed(result)}"
        + ("." if claim.adjacency is None else f", neighbours by {claim.adjacency}.")
        + (f" {BEYOND}" if claim.beyond_source else "")
        + (f" {claim.note}" if claim.note else ""),
        "",
        *(f"{number}. {step}" for number, step in enumerate(result.finding.steps, 1)),
        "",
    ]
    return "\n".join(lines)
