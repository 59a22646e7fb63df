"""Conditions that a bound on somebody else's procedure rests on, and that its files do not show.

Each has a name by which a user states that it holds, and a sentence that stands among the assumptions of the bound.
What neither the file nor the user states is listed, so that nothing passes a policy on what nobody said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Sampler(StrEnum):
    """How the records of a step were chosen."""

    POISSON = "poisson"
    """Each record independently with one probability."""
    FIXED = "fixed"
    """Each step a uniform sample of a fixed size, drawn anew without replacement."""
    SHUFFLED = "shuffled"
    """Consecutive batches of a shuffled data set."""
    UNKNOWN = "unknown"
    """Nobody knows; any choice that does not depend on the values of records."""


class Normalizer(StrEnum):
    """What a step divides its noisy sum by."""

    PUBLIC = "public"
    """A number that is the same for neighbouring data sets, or nothing."""
    BATCH = "batch"
    """A number that follows the size of the batch or of the data set."""
    UNKNOWN = "unknown"
    """Nobody knows."""


class Condition(StrEnum):
    """A condition that a user states as it is, by its name."""

    CLIPPING = "clipping"
    """Each contribution was clipped by itself."""
    NOISE = "noise"
    """The noise was exact, fresh and secret."""
    ONCE = "once"
    """A record is in a step at most once."""
    EPOCHS = "epochs"
    """Each epoch of a shuffled data set ran to its end."""
    INDEPENDENT = "independent"
    """Which other records are in a step does not depend on whether a record is there."""
    EVENT = "event"
    """What was released is what an event says."""
    DISJOINT = "disjoint"
    """The parts of a parallel composition have no unit in common."""
    RUN = "run"
    """What ran is what the file describes."""
    NEWEST = "newest"
    """A ledger is the newest one of its runs."""
    RECORDED = "recorded"
    """The assumptions of a run that its ledger does not record hold."""


CLIPPED = (
    "Each step clipped each {who}'s contribution by itself to the length that the noise multiplier refers to; nothing "
    "else that a step did, such as batch normalisation, depended on several {who}s of a batch together. It released "
    "nothing but the noisy sum, divided by a number that does not depend on the values of {who}s."
)
EXACT_NOISE = "The noise was drawn from an exact Gaussian with fresh randomness that nobody knows."
AT_MOST_ONCE = (
    "A {who} is in a step at most once: no step accumulated the gradients of several draws, or of two epochs."
)
AS_ITS_EVENT = (
    "What was released is what its event says and nothing else: no unit changes it by more than the noise is relative "
    "to, and the noise was exact, fresh and known to nobody."
)
INDEPENDENT_BATCHES = "Which other {who}s are in a step does not depend on whether a {who} is in the data at all."
PUBLIC_NORMALIZER = "The sampling rate and what noisy sums were divided by, if anything, are public"


@dataclass(frozen=True, slots=True)
class Unstated:
    """A condition that neither a file nor the user states."""

    name: str  # of the condition: an option without its dashes, such as ``unit``, or the value of a `Condition`
    sentence: str  # the assumption

    @property
    def option(self) -> str:
        """How the command line states it, with the value under which the bound holds."""
        if self.name in tuple(Condition):
            return f"--condition {self.name}"
        return f"--{self.name} {_VALUES[self.name]}"


_VALUES = {
    "adjacency": "add_remove|replace_one|zero_out",
    "unit": "'record|user|group(k)'",
    "sampler": "poisson|fixed|shuffled|unknown",
    "normalizer": "public",
}


def options(unstated: Iterable[Unstated]) -> str:
    """The options that state some conditions, in one line."""
    return " ".join(dict.fromkeys(item.option for item in unstated))
