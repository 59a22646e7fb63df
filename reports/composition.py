"""A composed privacy event in words: a tree for a reader, from the JSON that the ledger writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpassay.base.number_format import format_number, format_upper
from dpassay.reports import text

_DEEPEST = 12


@dataclass(frozen=True, slots=True)
class CompositionLine:
    """One line of the tree and the lines below it."""

    words: str
    below: tuple[CompositionLine, ...] = ()


def describe(event: Mapping[str, Any], depth: int = 0) -> CompositionLine:
    """`event`, as `dpassay.accounting.events.to_json` writes it, in words.

    Equal parts are listed once, with their number. An event of a type that has no words here is shown by its name and
    fields.
    """
    kind = str(event.get("type", "unknown event"))
    if depth > _DEEPEST:
        return CompositionLine("… (deeper levels are in assay.json)")
    match kind:
        case "SelfComposedDpEvent":
            count = text.plain(event.get("count"))
            return CompositionLine(f"{count} times, each adaptively after the last:", (_inner(event, depth),))
        case "ComposedDpEvent":
            return CompositionLine("all of these, one after the other:", _grouped(event, depth, "time", "times"))
        case "ParallelDpEvent":
            public = " that are public," if event.get("partition_is_public") else ","
            below = _grouped(event, depth, "part", "parts")
            words = f"in parallel on {text.plain(len(event.get('events', ())))} disjoint parts of the data{public} "
            if len(below) == 1:
                return CompositionLine(words + "in each of them:", below[0].below)
            return CompositionLine(words + "that is:", below)
        case "PoissonSampledDpEvent":
            words = f"on a Poisson sample, each unit in it with probability {_number(event, 'sampling_probability')}:"
            return CompositionLine(words, (_inner(event, depth),))
        case "SecretGroupsReleaseDpEvent":
            groups = [describe(group, depth + 1) for group in event.get("groups", ())]
            how = "groups of secrets, by their budgets and by how often they are drawn,"
            words = f"one noisy release, which for {text.plain(len(groups))} {how} in turn is:"
            return groups[0] if len(groups) == 1 else CompositionLine(words, tuple(groups))
        case _ if kind in _SINGLE:
            return CompositionLine(_SINGLE[kind](event))
        case _:
            return _by_fields(kind, event, depth)


def _number(event: Mapping[str, Any], key: str) -> str:
    return format_number(event.get(key))


def _selection(event: Mapping[str, Any]) -> str:
    words = f"one selection from a finite set, such as a token: bounded range η = {format_upper(event.get('eta'))}"
    rounding = event.get("rounding")
    return words + (f", sampler’s rounding {format_upper(rounding, 2)}" if rounding else "")


def _secret_release(event: Mapping[str, Any]) -> str:
    """A release of secrets: how often one occurs in it, and the noise."""
    weights, sigma = [float(weight) for weight in event.get("weights", ())], float(event.get("noise_multiplier", 0))
    mean = math.fsum(occurrences * weight for occurrences, weight in enumerate(weights))
    often = " on average" if sum(weight > 0 for weight in weights) > 1 else ""
    words = f"one release in which a secret occurs in {format_number(mean)} drawn records{often}"
    if sigma == 0:
        return words + ", taken to reveal it"
    return words + f": Gaussian noise, {format_number(sigma)} times the length of an occurrence"


def _inner(event: Mapping[str, Any], depth: int) -> CompositionLine:
    inner = event.get("event")
    return describe(inner, depth + 1) if isinstance(inner, Mapping) else CompositionLine("an unknown event")


def _grouped(event: Mapping[str, Any], depth: int, each: str, many: str) -> tuple[CompositionLine, ...]:
    """The events inside, equal ones once."""
    inside = event.get("events", ())
    counts: dict[CompositionLine, int] = {}
    for item in inside if isinstance(inside, Sequence) else ():
        if isinstance(item, Mapping):
            step = describe(item, depth + 1)
            counts[step] = counts.get(step, 0) + 1
    return tuple(
        step if n == 1 and each == "time" else CompositionLine(f"{text.plain(n)} {each if n == 1 else many}:", (step,))
        for step, n in counts.items()
    )


def _by_fields(kind: str, event: Mapping[str, Any], depth: int) -> CompositionLine:
    fields = {key: value for key, value in event.items() if key not in ("type", "event", "events")}
    words = kind.removesuffix("DpEvent") + (f": {text.plain(fields)}" if fields else "")
    below = (_inner(event, depth),) if isinstance(event.get("event"), Mapping) else ()
    return CompositionLine(words, (*below, *_grouped(event, depth, "time", "times")))


_SINGLE: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "NoOpDpEvent": lambda _: "nothing that reads the data",
    "NonPrivateDpEvent": lambda _: "a release without any protection: no finite ε",
    "BoundedRangeSelectionDpEvent": _selection,
    "ExPostSelectionDpEvent": lambda event: f"{_selection(event)}; what it really cost is recorded beside it",
    "DiscreteLaplaceDpEvent": lambda event: (
        "a count with discrete Laplace noise: sensitivity "
        f"{_number(event, 'sensitivity')}, parameter {_number(event, 'noise_parameter')}"
    ),
    "LaplaceDpEvent": lambda event: f"Laplace noise, {_number(event, 'noise_multiplier')} times the sensitivity",
    "GaussianDpEvent": lambda event: f"Gaussian noise, {_number(event, 'noise_multiplier')} times the sensitivity",
    "RandomizedResponseDpEvent": lambda event: (
        f"randomised response over {text.plain(event.get('num_buckets'))} "
        f"answers, parameter {_number(event, 'noise_parameter')}"
    ),
    "ZCDpEvent": lambda event: f"a mechanism known to be zero-concentrated with ρ = {format_upper(event.get('rho'))}",
    "SecretReleaseDpEvent": _secret_release,
}
"""Events that hold no other, in words."""
