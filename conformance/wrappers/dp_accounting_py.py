"""The wrapper of dp_accounting: the smaller ε of its two accountants, by loss distributions and Rényi divergences.

It reads events alone, and knows those that are classes of dp_accounting.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

from protocol import Rejected, Tool, Unsupported, main, python

RELATIONS = {"add_remove": "ADD_OR_REMOVE_ONE", "replace_one": "REPLACE_ONE"}


def versions() -> str:
    """The program's name and version."""
    return f"dp_accounting {importlib.metadata.version('dp-accounting')}, {python()}"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key is there twice")
    return dict(pairs)


def _refused(constant: str) -> float:
    raise ValueError(constant)


def _event(content: Any) -> Any:
    from dp_accounting import dp_event

    if isinstance(content, list):
        return [_event(item) for item in content]
    if not isinstance(content, dict):
        return float(content) if content == "inf" else content
    kind = getattr(dp_event, str(content.get("type")), None)
    if kind is None:
        raise Unsupported(f"has no {content.get('type')}")
    return kind(**{name: _event(value) for name, value in content.items() if name != "type"})


def epsilon(file: Path, delta: str, adjacency: str) -> str:
    """The least ε of its accountants."""
    import dp_accounting
    from dp_accounting import pld, rdp

    if file.suffix != ".json" or adjacency not in RELATIONS:
        raise Unsupported(f"reads no {file.suffix} or has no {adjacency}")
    try:
        content = json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=_unique, parse_constant=_refused)
    except ValueError as error:
        raise Rejected(f"is no JSON: {error}") from None
    if not isinstance(content, dict) or "type" not in content:
        raise Unsupported("reads events alone")
    relation = getattr(dp_accounting.NeighboringRelation, RELATIONS[adjacency])
    answers, refused = [], []
    try:
        event = _event(content)
        for accountant in (pld.PLDAccountant(relation), rdp.RdpAccountant(neighboring_relation=relation)):
            try:
                answers.append(float(accountant.compose(event).get_epsilon(float(delta))))
            except dp_accounting.UnsupportedEventError as error:
                refused.append(str(error))
    except (TypeError, ValueError) as error:
        raise Rejected(f"{type(error).__name__}: {error}") from None
    if not answers:
        raise Unsupported(refused[0])
    return repr(min(answers))


TOOL = Tool(versions, epsilon=epsilon)

if __name__ == "__main__":
    sys.exit(main(TOOL))
