"""Measurements of OpenDP, as `opendp.mod.serialize` writes them.

A measurement is a tree of constructors with their arguments. The names in a file choose from the tables of this module,
and nothing is imported by them. A measurement becomes its own privacy loss, a pure ε or a ρ of zCDP, for inputs at a
distance of 1; constructors, arguments and domains that the tables lack are refused.

The library's proofs of the constructors: Laplace noise of scale b on a sensitivity of s is s/b-DP, on the integers and
on floats, which it takes exactly; Gaussian noise has ρ = s²/(2σ²); randomised response that keeps one of k answers with
probability p has ε = log(p(k − 1)/(1 − p)).

Source: `opendp/mod.py`, `measurements.py`, `combinators.py` and `transformations.py` of opendp 0.16.0; Canonne, Kamath
and Steinke, "The Discrete Gaussian for Differential Privacy" (2020), Theorem 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from dp_accounting import DpEvent, dp_event

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.conversions import formulas
from dpassay.accounting.events import EpsilonDeltaDpEvent
from dpassay.accounting.interop.names import left_unread, shown
from dpassay.accounting.interop.state import RepeatedEvent, State
from dpassay.base import validate

_VERSION = "0.16"
_NODE = {"__function__", "__module__", "__kwargs__", "__version__"}
_DEEPEST = 60
_MAX_NODES = 100_000
_INTEGERS = {f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)} | {"usize"}


@dataclass(frozen=True, slots=True)
class _Data:
    """What a measurement is applied to."""

    metric: str  # the name of OpenDP's constructor of the metric
    kind: str  # ``rows``, ``number`` or ``vector``
    atom: str | None  # the type of its entries, as OpenDP names it
    bounds: tuple[Any, Any] | None = None  # of the entries
    # largest distance in `metric` between neighbours; of rows, the number of rows that differ.
    sensitivity: Fraction = Fraction(1)


@dataclass(slots=True)
class _TreeContents:
    """What was met in a tree."""

    nodes: int = 0
    versions: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)
    metrics: set[str] = field(default_factory=set)
    deltas: set[float] = field(default_factory=set)


def recognize(content: Any) -> State | None:
    """The state in JSON content; None if there is none."""
    if not isinstance(content, Mapping) or not {"__function__", "__module__"} <= set(content):
        return None
    met = _TreeContents()
    try:
        parts = tuple(_measurement(content, None, met, 0))
    except (TypeError, AttributeError, OverflowError, KeyError, ZeroDivisionError):
        raise ValueError("looks like a measurement of OpenDP, but an argument has another type") from None
    if len(met.metrics) > 1:
        raise ValueError(
            f"holds measurements of OpenDP on inputs of different metrics: {', '.join(sorted(met.metrics))}"
        )
    adjacency = _RELATIONS.get(met.metrics.pop()) if met.metrics else None
    notes = ["The measurement was invoked once, and on data of its domain."]
    if met.versions - {_VERSION}:
        notes.append(f"Constructors of another version of OpenDP than {_VERSION} do what those of {_VERSION} do.")
    if adjacency is None:
        notes.append("Neighbours are at a distance of 1 in the measurement's input metric, which is not one of rows.")
    return State(
        library="OpenDP",
        what="a measurement of OpenDP",
        parts=parts,
        adjacency=adjacency,
        delta=met.deltas.pop() if len(met.deltas) == 1 else None,
        remarks=left_unread(met.unread, ()),
        notes=tuple(notes),
        exact=False,
    )


# --- the tree


def _call(node: Any, met: _TreeContents, depth: int) -> tuple[str, Mapping[str, Any]]:
    """The name of a constructor and its arguments."""
    met.nodes += 1
    if depth > _DEEPEST or met.nodes > _MAX_NODES:
        raise ValueError("holds a measurement of OpenDP that is too large or too deep")
    if not isinstance(node, Mapping) or "__function__" not in node:
        raise ValueError("holds something else than a constructor of OpenDP where one must be")
    name, arguments = node["__function__"], node.get("__kwargs__", {})
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise ValueError("holds a constructor of OpenDP without a name or with arguments that are none")
    met.versions.add(".".join(str(node.get("__version__", "")).split(".")[:2]))
    met.unread |= {str(key) for key in set(node) - _NODE}
    return name, arguments


def _taken(name: str, arguments: Mapping[str, Any], *known: str) -> None:
    """Checks that no argument is set but the known ones."""
    if extra := [
        key for key, value in arguments.items() if key not in known and value is not None and value is not False
    ]:
        raise ValueError(f"dpassay does not support argument {shown(extra[0])} of OpenDP's {name}")


def _measurement(node: Any, data: _Data | None, met: _TreeContents, depth: int) -> list[RepeatedEvent]:
    """The releases of a measurement, on data that a transformation gave it, or on its own input."""
    name, arguments = _call(node, met, depth)
    if name not in _MEASUREMENTS:
        raise ValueError(f"dpassay does not support OpenDP's measurement {shown(name)}")
    return _MEASUREMENTS[name](name, arguments, data, met, depth)


def _chain(
    name: str, given: Mapping[str, Any], data: _Data | None, met: _TreeContents, depth: int
) -> list[RepeatedEvent]:
    _taken(name, given, "measurement1", "transformation0")
    return _measurement(
        given["measurement1"], _transformed(given["transformation0"], data, met, depth + 1), met, depth + 1
    )


def _several(
    name: str, given: Mapping[str, Any], data: _Data | None, met: _TreeContents, depth: int
) -> list[RepeatedEvent]:
    _taken(name, given, "measurements")
    measurements = given["measurements"]
    if not isinstance(measurements, list):
        raise ValueError(f"measurements of OpenDP's {name} must be a list")
    return [item for each in measurements for item in _measurement(each, data, met, depth + 1)]


def _inner(
    name: str, given: Mapping[str, Any], data: _Data | None, met: _TreeContents, depth: int
) -> list[RepeatedEvent]:
    """A conversion of the measure: what ran is what it converts."""
    _taken(name, given, "measurement", "delta")
    if given.get("delta") is not None:
        met.deltas.add(float(validate.open_probability(delta=given["delta"])))
    return _measurement(given["measurement"], data, met, depth + 1)


def _noise(
    name: str, given: Mapping[str, Any], data: _Data | None, met: _TreeContents, depth: int
) -> list[RepeatedEvent]:
    """Laplace, geometric or Gaussian noise on a number or a vector."""
    _taken(name, given, "input_domain", "input_metric", "scale", "MO")
    data = _input(given, met, depth) if data is None else data
    gaussian = name == "make_gaussian"
    metrics = ("absolute_distance", "l2_distance" if gaussian else "l1_distance")
    if data.kind == "rows" or data.metric not in metrics:
        raise ValueError(f"OpenDP's {name} needs a metric of {' or '.join(metrics)}, not {shown(data.metric)}")
    scale = Fraction(float(validate.non_negative(scale=given["scale"])))
    measure = str(given.get("MO", "")).split("<")[0]
    if measure not in ("", "ZeroConcentratedDivergence" if gaussian else "MaxDivergence"):
        raise ValueError(f"dpassay does not support measure {shown(measure)} of OpenDP's {name}")
    if not data.sensitivity:
        return []
    if not scale:
        return [RepeatedEvent(dp_event.NonPrivateDpEvent())]
    ratio = data.sensitivity / scale
    event = dp_event.ZCDpEvent(formulas.up(ratio**2 / 2)) if gaussian else _pure(formulas.up(ratio))
    return [RepeatedEvent(event)]


def _pure(epsilon: float) -> DpEvent:
    return EpsilonDeltaDpEvent(epsilon) if math.isfinite(epsilon) else dp_event.NonPrivateDpEvent()


def _response(
    name: str, given: Mapping[str, Any], data: _Data | None, met: _TreeContents, depth: int
) -> list[RepeatedEvent]:
    """Randomised response, on the answer of one unit."""
    _taken(name, given, "prob", "categories", "T")
    if data is not None:
        raise ValueError(f"dpassay does not support OpenDP's {name} after a transformation")
    met.metrics.add("discrete_distance")
    kept = Fraction(float(validate.probability(prob=given["prob"])))
    categories = given.get("categories", [False, True])
    answers = len(categories) if isinstance(categories, list) else 0
    if answers < 2:
        raise ValueError(f"categories of OpenDP's {name} must be a list of at least two")
    if kept == 1:
        return [RepeatedEvent(dp_event.NonPrivateDpEvent())]
    ratio = kept * (answers - 1) / (1 - kept)
    if ratio < 1:
        raise ValueError(f"prob of OpenDP's {name} must be at least 1/{answers}")
    return [RepeatedEvent(_pure(math.log(formulas.up(ratio)) * (1 + 2**-50) + 2**-50))]


_MEASUREMENTS: dict[str, Callable[[str, Mapping[str, Any], _Data | None, _TreeContents, int], list[RepeatedEvent]]] = {
    "make_chain_mt": _chain,
    "make_composition": _several,
    "make_basic_composition": _several,
    "make_fix_delta": _inner,
    "make_zCDP_to_approxDP": _inner,
    "make_pureDP_to_zCDP": _inner,
    "make_approximate": _inner,
    "make_laplace": _noise,
    "make_geometric": _noise,
    "make_gaussian": _noise,
    "make_randomized_response": _response,
    "make_randomized_response_bool": _response,
}


# --- inputs and transformations


_ROWS = ("symmetric_distance", "insert_delete_distance")
_RELATIONS = {**dict.fromkeys(_ROWS, Adjacency.ADD_REMOVE), "discrete_distance": Adjacency.REPLACE_ONE}
"""The neighbouring relation of inputs at a distance of 1, by metric; of numbers and vectors none is known."""


def _input(given: Mapping[str, Any], met: _TreeContents, depth: int) -> _Data:
    """The input of the first transformation or of a measurement, where neighbours are at a distance of 1."""
    metric, _ = _call(given["input_metric"], met, depth + 1)
    name, domain = _call(given["input_domain"], met, depth + 1)
    rows = metric in _ROWS
    if not rows and metric not in ("absolute_distance", "l1_distance", "l2_distance"):
        raise ValueError(f"dpassay does not support metric {shown(metric)} of OpenDP")
    met.metrics.add(metric)
    if name == "vector_domain":
        _taken(name, domain, "atom_domain")  # a known size makes neighbours of other distances
        name, domain = _call(domain["atom_domain"], met, depth + 2)
        kind = "rows" if rows else "vector"
    else:
        kind = "number"
    if name != "atom_domain" or rows != (kind == "rows"):
        raise ValueError(f"dpassay does not support domain {shown(name)} of OpenDP with {metric}")
    return _Data(metric, kind, str(domain.get("T")), _pair(domain.get("bounds")))


def _pair(bounds: Any) -> tuple[Any, Any] | None:
    if bounds is None:
        return None
    match bounds:
        case {"__tuple__": [low, high]} if all(
            isinstance(item, int | float) and not isinstance(item, bool) for item in (low, high)
        ):
            return low, high
    raise ValueError("bounds of OpenDP must be a tuple of two numbers")


def _transformed(node: Any, data: _Data | None, met: _TreeContents, depth: int) -> _Data:
    """What a transformation makes of its input."""
    name, given = _call(node, met, depth)
    if name == "make_chain_tt":
        _taken(name, given, "transformation1", "transformation0")
        first = _transformed(given["transformation0"], data, met, depth + 1)
        return _transformed(given["transformation1"], first, met, depth + 1)
    if name not in _TRANSFORMATIONS:
        raise ValueError(f"dpassay does not support OpenDP's transformation {shown(name)}")
    data = _input(given, met, depth) if data is None else data
    if data.kind != "rows":
        raise ValueError(f"dpassay does not support OpenDP's {name} on a {data.kind}")
    return _TRANSFORMATIONS[name](name, given, data)


def _clamp(name: str, given: Mapping[str, Any], data: _Data) -> _Data:
    _taken(name, given, "input_domain", "input_metric", "bounds")
    return replace(data, bounds=_pair(given["bounds"]))


def _count(name: str, given: Mapping[str, Any], data: _Data) -> _Data:
    _taken(name, given, "input_domain", "input_metric", "TO")
    return _Data("absolute_distance", "number", str(given.get("TO")), sensitivity=data.sensitivity)


def _sum(name: str, given: Mapping[str, Any], data: _Data) -> _Data:
    """Of integers: sums of floats round, and OpenDP's allowance for it is not reproduced."""
    _taken(name, given, "input_domain", "input_metric")
    if data.bounds is None or data.atom not in _INTEGERS:
        raise ValueError(
            f"dpassay does not support OpenDP's {name} of type {shown(data.atom)}; it supports integers between bounds"
        )
    low, high = (Fraction(validate.finite(bounds=bound)) for bound in data.bounds)
    return _Data("absolute_distance", "number", data.atom, sensitivity=max(abs(low), abs(high)) * data.sensitivity)


_TRANSFORMATIONS: dict[str, Callable[[str, Mapping[str, Any], _Data], _Data]] = {
    "make_clamp": _clamp,
    "make_count": _count,
    "make_count_distinct": _count,
    "make_sum": _sum,
}
