"""What a release says, in the forms that others ask for: the OpenDP registry of deployments, and NIST SP 800-226.

Both are made from the releasable part of an assay alone. What only the publisher knows is left empty, or said to be
theirs to answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from dpassay.accounting.bounds import Bound
from dpassay.reports import text
from dpassay.reports.claim import guarantee_means
from dpassay.reports.composition import CompositionLine, describe
from dpassay.reports.release import Release

REGISTRY, NIST = "opendp-registry.yaml", "nist-sp-800-226.md"

_VARIANTS = {"rho": "Zero-concentrated DP", "renyi_epsilon": "Renyi DP"}
_PARAMETERS = {"epsilon": "epsilon", "rho": "rho", "renyi_epsilon": "epsilon"}
_POST_PROCESSING = "The documents are computed from what was charged alone; nothing else of the data was used for them."
_OTHER_RELEASES = (
    "The bounds are about this run alone. Whatever else is released of the same data composes with it: account for all "
    "ledgers together (`dpassay account`)."
)
_YOURS = "For the publisher to answer: dpassay does not know it."


def registry_entry(page: Release, mechanism: str, published: str) -> str:
    """A draft of an entry in the OpenDP registry of deployments (YAML, all tiers); empty where only you know.

    The privacy parameters are those that are proven of every output, not those that are claimed.

    Args:
        page: what is released.
        mechanism: what the mechanism does, in words; empty for its name.
        published: the day of the release, ``YYYY-MM-DD``.

    Source: ``schemas/deployments-schema.yaml`` of opendp/deployments-registry-data, at commit 3e9c812 (July 2026).
    """
    import yaml

    claim, best = page.claim, page.best_upper
    contact = str(claim.get("contact", ""))
    unit = str(claim.get("unit", "record"))
    sections = {
        "basic": {
            "name": page.name,
            "data_curators": [contact],
            "intended_use": str(claim.get("purpose", "")),
            "data_product_type": "Synthetic data",
            "data_product_region": "",
            "description": _joined([_mechanism(page, mechanism), _period(page)]),
            "publication_date": published,
        },
        "dp_variant": {
            "variant_name": _variant(best),
            "data_domain": "",
            "unprotected_quantities": _joined(page.not_protected),
        },
        "privacy_loss": {
            "privacy_unit": unit,
            "privacy_unit_details": _neighbours(page),
            "privacy_parameters": _parameters(best),
            "privacy_parameters_details": _joined([f"Claimed: {page.guarantee}.", page.sentence]),
        },
        "deployment_model": {
            "model_name": "Central",
            "actors": _joined(page.threat_model),
            "release_type": "One release",
            "release_type_details": _OTHER_RELEASES,
            "data_source_type": "Static",
            "access_type": "Non-interactive",
        },
        "accounting": {
            "post_processing": _POST_PROCESSING,
            "composition": _composition(page),
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": _joined(page.limitations),
            "mechanisms": _joined([_mechanism(page, mechanism), *page.side_channels, _facts(page)]),
            "justification": _joined(_assumptions(page)),
        },
        "administrative": {"sources": "", "notes": f"Ledger {page.ledger.head}", "registry_authors": [contact]},
    }
    entry = {"url_slug": page.name.lower(), "status": "Draft", "tier": 3, "deployment": sections}
    written: str = yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=100)
    return written


def nist_answers(page: Release, mechanism: str) -> str:
    """What NIST SP 800-226 asks of a guarantee, with what this release answers; Markdown.

    Args:
        page: what is released.
        mechanism: what the mechanism does, in words; empty for its name.

    Source: Near and Darais, Guidelines for Evaluating Differential Privacy Guarantees, NIST SP 800-226 (March 2025):
    the components of a guarantee. The questions are worded here.
    """
    claim = page.claim
    audits = ", ".join(text.method(audit.name) for audit in page.audits) or "none"
    answers: list[tuple[str, str, Iterable[str]]] = [
        (
            "Privacy parameter and variant",
            "Which variant of differential privacy is claimed, with which parameters, and what is proven?",
            [f"Claimed: {page.guarantee}.", guarantee_means(claim), page.sentence, *page.shortfalls],
        ),
        ("Unit of privacy", "What does the guarantee protect?", [_neighbours(page), *page.not_protected]),
        (
            "Other releases",
            "What else is released of the same data?",
            [_OTHER_RELEASES, _YOURS],
        ),
        (
            "Algorithm and its correctness",
            "Which algorithm runs, what does its proof assume, and how was it tested?",
            [_mechanism(page, mechanism), _composition(page), *_assumptions(page), f"Audits made: {audits}."],
        ),
        (
            "Utility and bias",
            "How useful are the released data, and for whom are they worse?",
            ["Measured on the private data, which is not released (`dpassay utility`).", _YOURS],
        ),
        ("Query model", "Who may ask what?", ["One release of synthetic data; nobody queries the private data."]),
        ("Threat model", "Who is trusted, and against whom does the guarantee hold?", page.threat_model),
        (
            "Implementation",
            "How is noise drawn, and which side channels are there?",
            [*page.side_channels, _facts(page)],
        ),
        (
            "Data security and access control",
            "Who can read the private data and what the run keeps of them?",
            ["What a run keeps is readable by its owner alone, in the folder `private/`.", _YOURS],
        ),
        ("Data collection exposure", "What could be seen where the data were collected?", [_period(page), _YOURS]),
        ("Purpose and contact", "What is the release for, and who answers for it?", [_purpose(page), _contact(page)]),
    ]
    lines = [
        f"# NIST SP 800-226: {page.name}",
        "",
        "The components of a differential-privacy guarantee by NIST SP 800-226 (March 2025), and what this release "
        "answers. The questions are worded by dpassay.",
    ]
    for heading, question, answer in answers:
        lines += ["", f"## {heading}", "", f"*{question}*", "", *(f"- {_one_line(item)}" for item in answer if item)]
    return "\n".join(lines) + "\n"


def _variant(best: Bound | None) -> str:
    if best is None or not _parameters(best):
        return "Custom"
    if best.quantity == "epsilon":
        return "Approximate DP" if best.delta else "Pure DP"
    return _VARIANTS[best.quantity]


def _parameters(best: Bound | None) -> dict[str, float]:
    """The parameters that are proven, under the names of the registry; empty if it has none for them."""
    if best is None or best.quantity not in _PARAMETERS or math.isinf(best.value):
        return {}
    return {_PARAMETERS[best.quantity]: best.value} | ({"delta": best.delta} if best.delta else {})


def _neighbours(page: Release) -> str:
    unit = str(page.claim.get("unit", "record"))
    relation = text.adjacency(str(page.claim.get("adjacency", "add_remove")), unit)
    return f"Unit: {unit}. Neighbouring data: {relation}."


def _mechanism(page: Release, words: str) -> str:
    what = words or str(page.claim.get("mechanism", "")).replace("_", " ")
    return f"Mechanism: {what}. Parameters: {text.plain(page.claim.get('parameters') or {})}."


def _composition(page: Release) -> str:
    if page.ledger.composition is None:
        return ""
    return " ".join(f"{'– ' * depth}{words}" for depth, words in _lines(describe(page.ledger.composition)))


def _lines(line: CompositionLine, depth: int = 0) -> Iterator[tuple[int, str]]:
    yield depth, line.words
    for inner in line.below:
        yield from _lines(inner, depth + 1)


def _assumptions(page: Release) -> list[str]:
    best = page.best_upper
    return [] if best is None else list(best.assumptions)


def _facts(page: Release) -> str:
    facts = {**page.implementation, **page.versions}
    return "Implementation: " + "; ".join(f"{name}: {value}" for name, value in facts.items()) + "."


def _period(page: Release) -> str:
    return f"Period: {page.claim['period']}." if "period" in page.claim else ""


def _purpose(page: Release) -> str:
    return f"Purpose: {page.claim['purpose']}." if "purpose" in page.claim else _YOURS


def _contact(page: Release) -> str:
    return f"Contact: {page.claim['contact']}." if "contact" in page.claim else ""


def _joined(sentences: Iterable[str]) -> str:
    return " ".join(_one_line(item) for item in sentences if item)


def _one_line(sentence: str) -> str:
    return " ".join(sentence.split())
