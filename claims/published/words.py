"""Published claims and what was found, in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from dpassay.base.number_format import format_interval, format_lower, format_number, format_upper
from dpassay.claims.published.registry import CheckedClaim
from dpassay.claims.published.statement import name_of, place_of, source_in_words

_INDEX = """# Published claims, checked

Which statements about privacy, in papers and in libraries, hold? Each statement below is read as "a quantity is at most
a number", and `dpassay claims` computes the quantity anew:

- **REFUTED**: it is larger. A counterexample, such as two neighbouring data sets or an adversary, or a proven
  computation shows it.
- **SUPPORTED**: it is proven to be at most the published number.
- **UNPROVEN**: neither, for the case that is named.

A refuted statement says something about that statement, and often about one misprint or one constant in it. It does not
say that a paper is wrong as a whole, or that a particular run leaked. Some statements go beyond their source, such as a
theorem used under another neighbouring relation; their pages say so.

A claim's link leads to the published number, the recomputed number and the steps between them, as
`dpassay claims 000-4 --explain` prints them.
"""

_PAGE = """# {name}

Which of its statements about privacy hold? What the verdicts mean, and all other statements that were checked, are in
[the index](../published-claims.md). Recomputed numbers are rounded outward, to six digits. Neighbours by *add_remove*
differ in one record that is added or removed; by *replace_one*, in one that is exchanged for another; by *zero_out*, in
one that is exchanged for a null record; by *secret*: a data set with the secret, and a reference without it.
"""

_SIGNS = {
    "Clustering and Median Aggregation Improve Differentially Private Inference": """
- *ε (ex post)*: the logarithm of how much more probable the released output is under one of two neighbours than under
  the other. It says nothing about other outputs ([ex-post](../ex-post.md)).
- *γ*: the cost that the paper computes for a token from the median of a batch; *c*: the clipping bound of logits; *τ*:
  the temperature. Of a batch of even size, the *right-median* is the larger of the two middle values.
- A selection has *bounded range* η if log-ratios of its probabilities under two neighbours differ by at most η between
  any two candidates ([selection](../selection.md)).
""",
    "Secret-Protected Evolution for Differentially Private Synthetic Text Generation": """
- *B(p)*: the largest probability that the release with the secret gives to an event to which the release without it
  gives at most p ([secret protection](../secret-protection.md)).
""",
}
"""Paper → its signs, as a list."""

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


def pages(result: Sequence[CheckedClaim]) -> dict[str, str]:
    """Pages of documentation on these claims, in Markdown: file → text. The first is the index of all claims; there is
    one more for each paper and each library."""
    sources: dict[str, list[CheckedClaim]] = {}
    for item in result:
        sources.setdefault(name_of(item.claim.source), []).append(item)
    index = [_INDEX, summary(result), ""]
    made = {}
    for name, items in sources.items():
        index += [f"## {name}", "", *(_line(item) for item in items), ""]
        text = [_PAGE.format(name=name) + _SIGNS.get(name, ""), *(_section(item) for item in items)]
        made[_file_of(name)] = "\n".join(text).rstrip() + "\n"
    return {"published-claims.md": "\n".join(index)} | made


def _file_of(name: str) -> str:
    """The file of the page of a paper or library: the first three words of its name, before a colon or a bracket."""
    words = re.findall("[a-z0-9]+", re.split("[:(]", name.lower())[0])
    return f"published/{'-'.join(words[:3])}.md"


def _line(result: CheckedClaim) -> str:
    claim = result.claim
    to = f"{_file_of(name_of(claim.source))}#{claim.id.replace('.', '')}"
    return f"- **{result.verdict}** [{claim.id}]({to}): {claim.statement}"


def _section(result: CheckedClaim) -> str:
    claim = result.claim
    lines = [
        f"## {claim.id}",
        "",
        f"{claim.statement} Source: {place_of(claim.source)}.",
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
