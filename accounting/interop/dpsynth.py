"""Diagnostic information of dpsynth, `DiagnosticInformation`, as JSON or as the text that the library writes.

Its operations are those that the budget was divided into: Gaussian or Laplace noise by its standard deviation, all
others by ε and δ. The sensitivity that a deviation is relative to is not recorded. An exponential mechanism stands
among them as Laplace noise of deviation σ, for an ε of √2/σ.

**Exponential mechanisms** divide scores by a sensitivity of 1, which is that of one record more or less, so a file with
one is at add_remove. That of AIM draws from exp(εu), which is ε-DP if all scores u move in one direction. They are
distances, which do not: it is 2ε-DP, and counts so (`dpassay claims lib-dpsynth-aim-selection --explain`). That of MST
draws from exp(εu/2).

Source: `diagnostic_info.proto`, `data_generation.py`, `discrete_mechanisms/common.py`, and `diagnostic_info.py`,
`aim.py` and `mst.py` in `pipeline_transformations` of google/dpsynth at cf8075f; `budget_accounting.py` of
pipeline-dp 0.3.1.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from typing import Any

from dp_accounting import DpEvent, dp_event

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.events import EpsilonDeltaDpEvent
from dpassay.accounting.interop.expressions import Expression, Rounded, parsed
from dpassay.accounting.interop.names import left_unread, shown
from dpassay.accounting.interop.state import RepeatedEvent, State
from dpassay.base import validate

_NEEDED = {"epsilon", "delta", "mechanism", "dp_operations"}
_OPERATION = {"name", "mechanism_type", "epsilon", "delta", "sigma", "count"}
_BEGINS = re.compile(r"\s*DiagnosticInformation\(")
_LONGEST = 2_000_000
_DEEPEST = 20
_MAX_OPERATIONS = 10_000


def recognize(content: Any) -> State | None:
    """The state in JSON content; None if there is none."""
    if not isinstance(content, Mapping) or not set(content) >= _NEEDED:
        return None
    operations = content["dp_operations"]
    if not isinstance(operations, list) or not operations or len(operations) > _MAX_OPERATIONS:
        raise ValueError("looks like diagnostic information of dpsynth, but dp_operations is no list of operations")
    try:
        delta = float(validate.probability(delta=content["delta"]))
        stated = float(validate.non_negative(epsilon=content["epsilon"]))
        parts = tuple(_operation(item, index) for index, item in enumerate(operations))
    except (TypeError, AttributeError, OverflowError):
        raise ValueError("looks like diagnostic information of dpsynth, but a field has another type") from None
    notes = [
        f"The mechanism {shown(content['mechanism'])} released nothing but what its operations say. The values of "
        "attributes that were derived from the data, if any were, are among them.",
        "The standard deviation of an operation is relative to the most that one unit changes, of Laplace noise under "
        "the neighbouring relation itself; an operation without one is (ε, δ)-DP each time that it runs.",
    ]
    selections = [item for item in operations if _is_selection(item)]
    if selections:
        notes.append("Scores of an exponential mechanism move by 1 at most as one record is added or removed.")
    if any(map(_is_one_sided, selections)):
        notes.append(
            "The exponential mechanism of AIM counts with twice the ε of its Laplace noise: it draws as if all scores "
            "moved in one direction, which they do not."
        )
    return State(
        library="dpsynth",
        what="diagnostic information of dpsynth",
        parts=parts,
        adjacency=Adjacency.ADD_REMOVE if selections else None,
        delta=delta if 0 < delta < 1 else None,
        stated=stated,
        remarks=left_unread(content, _NEEDED),
        notes=tuple(notes),
        exact=False,
    )


def found_text(text: str) -> State | None:
    """The state in the text of a `DiagnosticInformation`; None if it is none."""
    if _BEGINS.match(text) is None:
        return None
    expression = parsed(text, "diagnostic information of dpsynth", longest=_LONGEST, deepest=_DEEPEST)
    match expression.tree:
        case ast.Call(func=ast.Name(id="DiagnosticInformation"), args=[]):
            state = recognize(_plain(expression, expression.tree))
            if state is not None:
                return state
    raise ValueError("begins like diagnostic information of dpsynth, but is not the text that it writes")


def _plain(expression: Expression, node: ast.expr) -> Any:
    """What an expression of calls, lists and numbers holds; a call is its keywords, whatever its name."""
    if (number := expression.number(node)) is not None:
        return None if isinstance(number, Rounded) else number
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_plain(expression, item) for item in items]
        case ast.Call(func=ast.Name(), args=[]):
            return {key: _plain(expression, value) for key, value in expression.keywords(node).items()}
    return None


def _operation(item: Any, index: int) -> RepeatedEvent:
    if not isinstance(item, Mapping) or "mechanism_type" not in item or not set(item) <= _OPERATION:
        raise ValueError(f"dp_operations[{index}] must have the fields {', '.join(sorted(_OPERATION))}")
    try:
        count = validate.integer(minimum=1, count=item.get("count", 1))
        return RepeatedEvent(_event(_kind(item), item), count)
    except ValueError as error:
        raise ValueError(f"dp_operations[{index}]: {error}") from None


def _kind(item: Mapping[str, Any]) -> str:
    return str(item["mechanism_type"]).rsplit(".", 1)[-1].lower().removesuffix("_mechanism")


def _is_selection(item: Mapping[str, Any]) -> bool:
    """Whether an operation is an exponential mechanism, by the name that the library gives it."""
    return _kind(item) == "laplace" and "exponential" in str(item.get("name", "")).lower()


def _is_one_sided(selection: Mapping[str, Any]) -> bool:
    return str(selection.get("name", "")).lower().startswith("aim")


def _event(kind: str, item: Mapping[str, Any]) -> DpEvent:
    """Fields that are not set are 0, as in a protocol buffer. Laplace noise of deviation σ has ε = √2/σ."""
    sigma = float(validate.non_negative(sigma=item.get("sigma", 0.0)))
    epsilon = float(validate.non_negative(epsilon=item.get("epsilon", 0.0)))
    delta = float(validate.probability(delta=item.get("delta", 0.0)))
    if sigma and kind == "gaussian":
        return dp_event.GaussianDpEvent(sigma)
    if sigma and kind == "laplace":  # an exponential mechanism is charged so, too: no more than its pure ε is known
        pure = math.nextafter(math.nextafter(math.sqrt(2), 2) / sigma, math.inf)
        return EpsilonDeltaDpEvent(2 * pure if _is_selection(item) and _is_one_sided(item) else pure)
    if sigma or not (epsilon or delta):
        raise ValueError(f"a mechanism of type {shown(kind)} with sigma = {sigma!r} and ε = {epsilon!r} is not known")
    return EpsilonDeltaDpEvent(epsilon, delta)
