"""What every report says, whatever the mechanism: how far an assay reaches, and with which versions it was made.

Nothing here depends on private data.
"""

from __future__ import annotations

import platform
from importlib import metadata

from cupel import __version__
from cupel.accounting.guarantees import ExPostDP
from cupel.claims.base import Claim
from cupel.claims.data import BuiltinData


def limitations(claim: Claim) -> list[str]:
    """How far the assay reaches."""
    lines = [
        "An audit that finds no leak shows nothing above its ceiling.",
        "The assay covers one run. Several runs over one data set compose: account for their ledgers together.",
        "Parameters that were chosen by looking at private metrics are not accounted for.",
    ]
    if isinstance(claim.claimed(), ExPostDP):
        lines.append(
            "An ex-post epsilon holds for the data set and the output that occurred. It depends on the private data, "
            "so neither the number nor this verdict may be released, and it converts to no other guarantee."
        )
    if claim.variant == "as_published":
        lines.append(
            "This run follows the published steps to the letter; its documents are released for a stated reason only."
        )
    if isinstance(claim.data, BuiltinData) and claim.data.name == "keys":
        lines.append("The data are made-up keys, so the run shows how the mechanism behaves, not what real data cost.")
    return lines


def versions() -> dict[str, str]:
    """Versions of what computed the numbers."""
    packages = ("numpy", "scipy", "torch", "transformers", "dp-accounting", "prv-accountant", "opendp")
    return {
        "cupel": __version__,
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in packages},
    }
