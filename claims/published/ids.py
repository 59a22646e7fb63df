"""The ids of published claims, found without a look into their files."""

from __future__ import annotations

import re
from importlib import resources

ROWS = "dpassay.claims.published.rows"
"""The package of the files, `examples/claims/published` in the repository."""


def published_ids() -> list[str]:
    """The ids of all claims of the registry, in order; each has a file of its name."""
    names = (file.name for file in resources.files(ROWS).iterdir())
    return sorted((name.removesuffix(".yaml") for name in names if name.endswith(".yaml")), key=_natural)


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """A key that sorts 004-10 after 004-9."""
    parts = re.split(r"(\d+)", name)
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts if part]
