"""States of opake's accountant, ``accountant.json``: `opake.serialization.state_dict` of an `Accountant`.

A process is a tree. Compositions have ``left`` and ``right``, repetitions ``inner`` and ``count``; a step of DP-SGD is
a Gaussian in Poisson sampling. Correlated noise, adaptive clipping and other mechanisms are refused.

Source: `_process_codec.py`, `_accountant.py` and `_budgets.py` of opake-accounting 0.16.1; `_poisson.py` and
`_gaussian.py` of opake-dpsgd 0.16.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dp_accounting import dp_event

from dpassay.accounting.events import EpsilonDeltaDpEvent, TruncatedPoissonSampledDpEvent
from dpassay.accounting.interop.conditions import Sampler
from dpassay.accounting.interop.names import left_unread, shown
from dpassay.accounting.interop.state import Part, RepeatedEvent, SampledGaussian, State
from dpassay.base import validate

_FIELDS = {
    "Identity": (),
    "NonPrivate": (),
    "EpsDelta": ("epsilon", "delta"),
    "Gaussian": ("noise_multiplier",),
    "Poisson": ("inner", "sample_rate", "truncated_batch_size", "dataset_size"),
    "Repeated": ("inner", "count"),
    "CachedProcess": ("inner",),
    "Composed": ("left", "right"),
}
_MAX_NODES = 100_000


def recognize(content: Any) -> State | None:
    """The state in JSON content; None if there is none."""
    match content:
        case {"process": {"type": str()} as process, **rest} if set(rest) <= {"budget"}:
            pass
        case _:
            return None
    try:
        parts = _parts(process)
        stated_epsilon, delta = _budget(rest.get("budget"))
    except (TypeError, AttributeError, OverflowError):
        raise ValueError("looks like a state of opake's accountant, but a field has another type") from None
    sampled = any(isinstance(part, SampledGaussian) for part in parts)
    released = {type(part.event) for part in parts if isinstance(part, RepeatedEvent)}
    stated = EpsilonDeltaDpEvent in released
    notes = []
    if stated:
        notes.append("Mechanisms that the process states by ε and δ alone are (ε, δ)-DP.")
    if released - {EpsilonDeltaDpEvent}:
        notes.append(
            "Each release clipped each record's contribution to the length that its noise multiplier refers to; the "
            "noise was drawn from an exact Gaussian with fresh randomness that nobody knows."
        )
    if TruncatedPoissonSampledDpEvent in released:
        notes.append(
            "A batch above its limit was cut to a uniform choice of its records, and neither neighbour has more than "
            "dataset_size records."
        )
    budget = rest.get("budget")
    return State(
        library="opake",
        what="the state of opake's accountant",
        parts=tuple(parts),
        sampler=Sampler.POISSON if sampled or TruncatedPoissonSampledDpEvent in released else None,
        delta=delta,
        stated=stated_epsilon,
        remarks=() if delta is not None or budget is None else left_unread(["budget"], ()),
        notes=tuple(notes),
        exact=not stated,
    )


def _budget(budget: Any) -> tuple[float | None, float | None]:
    """ε and δ of a budget of ε. They are a target: what ran may cost more or less."""
    match budget:
        case {"type": "EpsilonBudget", "epsilon": epsilon, "delta": delta}:
            return float(validate.non_negative(epsilon=epsilon)), float(validate.open_probability(delta=delta))
        case {"type": "EpsilonBudget", "delta": delta}:
            return None, float(validate.open_probability(delta=delta))
    return None, None


def _parts(process: Mapping[str, Any]) -> list[Part]:
    """The releases of a tree, walked without recursion: a run may be as deep as it has steps."""
    waiting: list[tuple[Any, int]] = [(process, 1)]
    parts: list[Part] = []
    for _ in range(_MAX_NODES):
        if not waiting:
            return parts
        node, count = waiting.pop()
        kind, fields = _node(node)
        match kind:
            case "Composed":
                waiting += [(fields["right"], count), (fields["left"], count)]
            case "Repeated":
                times = validate.integer(minimum=1, count=fields["count"])
                waiting.append((fields["inner"], validate.integer(minimum=1, count=count * times)))
            case "CachedProcess":
                waiting.append((fields["inner"], count))
            case "Identity":
                pass
            case "Poisson":
                parts.append(_sampled(fields, count))
            case _:
                parts.append(RepeatedEvent(_single(kind, fields), count))
    raise ValueError(f"holds a process of opake of more than {_MAX_NODES} parts")


def _node(node: Any) -> tuple[str, Mapping[str, Any]]:
    kind = node.get("type") if isinstance(node, Mapping) else None
    if kind not in _FIELDS:
        raise ValueError(f"dpassay does not support process {shown(kind)} of opake")
    fields = {key: value for key, value in node.items() if key != "type"}
    optional = {"truncated_batch_size", "dataset_size"}
    if not set(_FIELDS[kind]) - optional <= set(fields) <= set(_FIELDS[kind]):
        raise ValueError(f"process {kind} of opake must have the fields {', '.join(_FIELDS[kind]) or 'type alone'}")
    return str(kind), fields


def _single(kind: str, fields: Mapping[str, Any]) -> dp_event.DpEvent:
    match kind:
        case "Gaussian":
            noise = float(validate.non_negative(noise_multiplier=fields["noise_multiplier"]))
            return dp_event.GaussianDpEvent(noise) if noise else dp_event.NonPrivateDpEvent()
        case "EpsDelta":
            epsilon = float(validate.non_negative(epsilon=fields["epsilon"]))
            return EpsilonDeltaDpEvent(epsilon, float(validate.probability(delta=fields["delta"])))
    return dp_event.NonPrivateDpEvent()


def _sampled(fields: Mapping[str, Any], count: int) -> Part:
    kind, inner = _node(fields["inner"])
    if kind not in ("Gaussian", "NonPrivate"):
        raise ValueError(f"dpassay does not support process {kind} of opake on a Poisson sample")
    rate = float(validate.positive(sample_rate=validate.probability(sample_rate=fields["sample_rate"])))
    noise = float(validate.non_negative(noise_multiplier=inner["noise_multiplier"])) if kind == "Gaussian" else 0.0
    limit, records = fields.get("truncated_batch_size"), fields.get("dataset_size")
    if limit is None and records is None:
        return SampledGaussian(noise, rate, count)
    if limit is None or records is None:
        raise ValueError("truncated_batch_size and dataset_size of opake must be given together")
    validate.integer(minimum=1, truncated_batch_size=limit)
    validate.integer(minimum=1, dataset_size=records)
    event = dp_event.GaussianDpEvent(noise)
    return RepeatedEvent(
        TruncatedPoissonSampledDpEvent(rate, records, limit, event) if noise else _single("", {}), count
    )
