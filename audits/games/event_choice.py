"""Which event of an output tells D′ from D best, by a cautious estimate of the ε that it shows on the runs seen."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpassay.attacks.black_box.feature_words import in_words, plain_threshold
from dpassay.attacks.black_box.output_events import IN_ALL_COLUMNS, Event
from dpassay.attacks.black_box.output_features import FAILED, Features
from dpassay.audits.games.distinguishing_choice import thresholds
from dpassay.audits.games.many_runs_design import ManyRunsDesign, Pair
from dpassay.audits.games.plainest_event import Candidate, is_copied, plainest
from dpassay.audits.statistics.binomial import lower_limit, upper_limit
from dpassay.base.arrays import Floats

_TAIL = 0.1  # probability with which the limit of a rate may be wrong while events are compared, for all events jointly
_TINY = 1e-9


def expected_events(design: ManyRunsDesign, pair: Pair) -> tuple[Event, ...]:
    """The events that a pair's strategy expects, and that a run fails if failures are asked for."""
    return (*pair.events, Event(FAILED, 1.0)) if design.failures else pair.events


def of_pair(features: Mapping[str, Features], name: str) -> Features:
    """The features of a run that are of any pair, and those of this one."""
    return {**features.get("", {}), **features.get(name, {})}


def chosen_event(
    design: ManyRunsDesign, pair: Pair, sides: tuple[Sequence[Features], Sequence[Features]]
) -> tuple[float, Event]:
    return choose_event(
        *sides, expected_events(design, pair), design.delta, plainest_wins=design.plainest, held=pair.held
    )


def choose_event(
    on_d: Sequence[Features],
    on_d_prime: Sequence[Features],
    expected: Sequence[Event],
    delta: float,
    *,
    plainest_wins: bool = True,
    held: tuple[Features, Features] | None = None,
) -> tuple[float, Event]:
    """The event with the largest cautious estimate of the ε that it shows at δ, and that estimate, which may be
    negative, from features of at least one run on D and one on D′.

    A rate is estimated by its exact limit at an error probability that is divided among the events that are compared:
    those that were expected before the runs among each other, and all thresholds on all features among each other. So
    an event that was expected needs fewer runs to stand out.

    If the plainest wins, the event is the plainest one that is as good (`dpassay.audits.games.plainest_event`).
    """
    names = sorted({name for features in (*on_d, *on_d_prime) for name in features})
    out, inside = (matrix(side, names) for side in (on_d, on_d_prime))
    found: list[Candidate] = []
    varied = [position for position in range(len(names)) if len(set(out[:, position]) | set(inside[:, position])) > 1]
    candidates: list[tuple[str, Floats, int, float]] = []
    for event in expected:
        if event.feature in names:
            tail = _TAIL / len(expected)
            candidates.append((event.feature, np.array([event.threshold]), names.index(event.feature), tail))
    for position in varied:
        between = thresholds(np.concatenate([out[:, position], inside[:, position]]))[1:]  # not that below all values
        candidates.append((names[position], between, position, _TAIL / len(varied)))
    for feature, tried, position, tail in candidates:
        fp, tp = (
            side.shape[0] - np.searchsorted(np.sort(side[:, position]), tried, side="left") for side in (out, inside)
        )
        values = _estimates(tp, inside.shape[0], fp, out.shape[0], delta, tail)
        index = int(np.argmax(values))
        gap = abs(tp[index] / inside.shape[0] - fp[index] / out.shape[0])
        event, hits = Event(feature, float(tried[index])), (int(fp[index]), int(tp[index]))
        if plainest_wins:
            seen = np.concatenate([out[:, position], inside[:, position]])
            event = plain_threshold(event, float(max(seen[seen < event.threshold], default=-math.inf)))
        found.append(Candidate(event, float(values[index]), float(gap), hits))
    if not found:
        return -math.inf, expected[0] if expected else Event(FAILED, 1.0)
    best = max(found, key=lambda candidate: (candidate.value, candidate.gap))
    if not plainest_wins:
        return best.value, best.event
    runs, tail = (out.shape[0], inside.shape[0]), _TAIL / max(1, len(varied))

    def estimate(candidate: Candidate) -> float:
        off, on = (np.array([count]) for count in candidate.hits)
        return float(_estimates(on, runs[1], off, runs[0], delta, tail)[0])

    def copied(feature: str) -> bool:
        return is_copied(feature, (on_d, on_d_prime), held)

    if best.event.feature in IN_ALL_COLUMNS:  # losses of columns add up, so one alone may be no name for that
        found = [candidate for candidate in found if _tells_at_least(candidate, best, runs)]
    return best.value, plainest(found, best, runs, estimate, copied).event


def _tells_at_least(candidate: Candidate, best: Candidate, runs: tuple[int, int]) -> bool:
    """Whether an event tells as much as the best one does, and happens always or never on one data set, which noise of
    the wrong size in one column does not."""
    certain = any(hits in (0, every) for hits, every in zip(candidate.hits, runs, strict=True))
    return candidate is best or (certain and candidate.gap >= best.gap)


def matrix(side: Sequence[Features], names: Sequence[str]) -> Floats:
    """Shape (runs, features); −∞ where a run has no such feature."""
    rows = [[features.get(name, -math.inf) for name in names] for features in side]
    return np.array(rows).reshape(len(side), len(names))


@functools.lru_cache(maxsize=256)
def _limits(trials: int, tail: float) -> tuple[Floats, Floats]:
    hits = np.arange(trials + 1)
    return lower_limit(hits, trials, tail), upper_limit(hits, trials, tail)


def _estimates(tp: Any, inside: int, fp: Any, outside: int, delta: float, tail: float) -> Floats:
    """Cautious estimates of ε for events with these counts, in the better direction of the event or its complement."""
    (low_in, up_in), (low_out, up_out) = _limits(inside, tail), _limits(outside, tail)
    ratios = [
        (low_in[tp], up_out[fp]),
        (low_out[fp], up_in[tp]),
        (low_in[inside - tp], up_out[outside - fp]),
        (low_out[outside - fp], up_in[inside - tp]),
    ]
    estimates = [np.log(np.maximum(more - delta, _TINY)) - np.log(less) for more, less in ratios]
    return np.asarray(np.max(estimates, axis=0))


def happened(event: Event, features: Features) -> bool:
    """Whether a run has an event."""
    return float(features.get(event.feature, -math.inf)) >= event.threshold


def event_to_json(event: Event) -> dict[str, Any]:
    """As plain JSON types, and in words."""
    threshold = event.threshold if math.isfinite(event.threshold) else math.copysign(1e300, event.threshold)
    return {"feature": event.feature, "threshold": threshold, "event": in_words(event)}
