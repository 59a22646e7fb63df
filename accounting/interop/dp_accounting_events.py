"""Events: ``DpEvent.to_named_tuple()`` of dp_accounting as JSON, their ``repr``, or as a certificate writes them.

A name in a file chooses from the events that this package knows; nothing is imported by it.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from dp_accounting import DpEvent, dp_event

from dpassay.accounting import events
from dpassay.accounting.interop.expressions import ROUNDED, Expression, Rounded, parsed
from dpassay.accounting.interop.names import is_name, shown
from dpassay.accounting.interop.state import RepeatedEvent, State
from dpassay.accounting.tuning.runs import NumberOfRuns
from dpassay.base import validate

_MODULE = "dp_accounting"
_TRUNCATED = "TruncatedSubsampledGaussianDpEvent"
_NAME = re.compile(r"\s*(dp_event\.|dp_accounting\.(dp_event\.)?)?(\w+DpEvent)\(")
_WORST = {
    ("GaussianDpEvent", "noise_multiplier"): "lower",
    ("LaplaceDpEvent", "noise_multiplier"): "lower",
    ("PoissonSampledDpEvent", "sampling_probability"): "upper",
    ("SingleEpochTreeAggregationDpEvent", "noise_multiplier"): "lower",
}
"""The end at which a number that was rounded costs most. A sample is a sample of a larger one."""

_UNSUPPORTED = {
    "UnsupportedDpEvent": "what the library itself could not describe",
}
_LONGEST = 200_000
_DEEPEST = 60
_TOO_DEEP = "holds an event of dp_accounting that is too deep"


def recognize(content: Any) -> State | None:
    """The state in JSON content; None if it is no event."""
    if _is_composition(content):
        return dataclasses.replace(
            _state(_decoded(_named_class(content, 0), 0)), what="an event, as certificates hold it"
        )
    if not _is_event(content):
        return None
    return _state(_decoded(content, 0))


def _is_composition(content: Any) -> bool:
    """Whether it is an event as `events.to_json` writes it."""
    match content:
        case {"type": str(name)}:
            return name.endswith("DpEvent") and "class_name" not in content and "module_name" not in content
    return False


def _named_class(content: Any, depth: int) -> Any:
    """An event as `events.to_json` writes it, as dp_accounting would."""
    if depth > _DEEPEST:
        raise ValueError(_TOO_DEEP)
    if _is_composition(content):
        fields = {key: _named_class(value, depth + 1) for key, value in content.items() if key != "type"}
        return {"module_name": _MODULE, "class_name": content["type"], **fields}
    if isinstance(content, list):
        return [_named_class(value, depth + 1) for value in content]
    return math.inf if content == "inf" else content


def found_text(text: str) -> State | None:
    """The state in the ``repr`` of an event; None if the text is none."""
    if _NAME.match(text) is None:
        return None
    expression = parsed(text, "an event of dp_accounting", longest=_LONGEST, deepest=_DEEPEST)
    event = _evaluated(expression, expression.tree)
    if expression.is_rounded:
        return dataclasses.replace(_state(event), notes=(ROUNDED,), exact=False)
    return _state(event)


def declared_event(content: Mapping[str, Any]) -> DpEvent:
    """The event that a mapping describes: ``class_name``, and its fields; events in it likewise."""
    named = _with_module(content, 0)
    if not _is_event(named):
        raise ValueError("an event is a mapping with the class_name of an event of dp_accounting and its fields")
    event = _decoded(named, 0)
    assert isinstance(event, DpEvent)
    return event


def _with_module(content: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError(_TOO_DEEP)
    if isinstance(content, Mapping):
        fields = {key: _with_module(value, depth + 1) for key, value in content.items()}
        return fields | ({"module_name": _MODULE} if "class_name" in fields else {})
    if isinstance(content, list):
        return [_with_module(value, depth + 1) for value in content]
    return content


def _state(event: DpEvent) -> State:
    return State(library="dp_accounting", what="an event of dp_accounting", parts=(RepeatedEvent(event),))


def _is_event(content: Any) -> bool:
    match content:
        case {"class_name": str(name), "module_name": str(module)}:
            return module.startswith(_MODULE) and name.endswith("DpEvent")
        case [str(module), str(name), *_]:
            return module.startswith(_MODULE) and name.endswith("DpEvent")
    return False


def _decoded(content: Any, depth: int) -> Any:
    """An event, a list of events, or a plain value; a named tuple is a mapping, or a list in its order."""
    if depth > _DEEPEST:
        raise ValueError(_TOO_DEEP)
    if _is_event(content) and isinstance(content, Mapping):
        fields = {key: value for key, value in content.items() if key not in ("module_name", "class_name")}
        return _event(content["class_name"], {key: _decoded(value, depth + 1) for key, value in fields.items()})
    if _is_event(content):
        _, name, *values = content
        return _event(name, _named(name, [_decoded(value, depth + 1) for value in values]))
    if isinstance(content, list):
        return [_decoded(value, depth + 1) for value in content]
    return content


def _named(name: str, values: Sequence[Any]) -> dict[str, Any]:
    known = getattr(dp_event, name, events.EVENTS.get(name)) if name in events.known_names() else None
    others = {_TRUNCATED: events.TRUNCATED, "ExponentialMechanismDpEvent": ("epsilon",)}
    order = others.get(name, () if known is None else [item.name for item in attrs.fields(known)])
    if len(values) != len(order):
        raise ValueError(f"event {shown(name)} of dp_accounting has other fields than this version knows")
    return dict(zip(order, values, strict=True))


def _event(name: str, fields: Mapping[str, Any]) -> DpEvent:
    """The event of a name that this package knows."""
    fields = {key: _worst(name, key, value) for key, value in fields.items()}
    if (known := events.of_library(name, fields)) is not None:
        return known
    if name not in events.known_names():
        what = f": {_UNSUPPORTED[name]}" if name in _UNSUPPORTED else ""
        raise ValueError(f"dpassay does not support event {shown(name)} of dp_accounting{what}")
    try:
        if "count" in fields:
            validate.integer(count=fields["count"])
        if name == "RepeatAndSelectDpEvent" and {"mean", "shape"} <= set(fields):
            NumberOfRuns(fields["mean"], fields["shape"])
        return events.build(name, fields)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"event {name} of dp_accounting: {str(error)[:200]}") from None


def _worst(name: str, field: str, value: Any) -> Any:
    """A value of a field; of a number that was rounded, the end that costs most."""
    if isinstance(value, str | dict) and not is_name(value):
        return "…"  # no number: whoever refuses it must not show it
    if isinstance(value, list):
        return [_worst(name, field, item) for item in value]
    if not isinstance(value, Rounded):
        return value
    match _WORST.get((name, field)):
        case "lower":
            return max(value.lower, min(0.0, value.upper))
        case "upper":
            return min(value.upper, max(1.0, value.lower))
    raise ValueError(
        f"{shown(field)} of event {shown(name)} is a tensor, which PyTorch prints rounded; print float() of it"
    )


def _evaluated(expression: Expression, node: ast.expr) -> Any:
    """What an expression of calls, lists and numbers builds; nothing is called but the constructors of events."""
    if (number := expression.number(node)) is not None:
        return number
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_evaluated(expression, item) for item in items]
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[]):
            given = expression.keywords(node)
            return _event(name, {key: _evaluated(expression, value) for key, value in given.items()})
    raise ValueError(
        "holds an expression that repr() of an event of dp_accounting does not write; numbers may be those of Python, "
        "such as 1.1, of NumPy, such as np.float64(1.1), or tensor(1.1)"
    )
