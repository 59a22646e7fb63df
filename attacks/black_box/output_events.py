"""Events of outputs, and the names of the features that strategies expect events of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SHOWN: Final = "columns that show the target"
"""Name of a feature: in how many columns the output has the target's value, or a number that points to it, where no
other record has one."""

REACHED: Final = "columns that reach the target"
"""Name of a feature: the same, but for numbers only those that are at least as far out as the target's."""

EXCHANGED: Final = "columns that show the target, or lack the record that it replaces"
"""Name of a feature: in how many columns the output has a number toward the target's, or its category more often than
half-way from D to D′, plus in how many it does not do so for the last record of D, which the target replaces. It is of
pairs only that expect it."""

IN_ALL_COLUMNS: Final = frozenset({REACHED, EXCHANGED})
"""Features to which all columns add their part. The threshold of an event that is expected of one is its largest
value."""

TOWARD: Final = "values toward the target's"
"""Name of a feature, of all columns or of one: how many numbers lie beyond the middle between those of D and the
target's."""

TOGETHER: Final = {2: "pairs of the target's values that occur", 3: "triples of the target's values that occur"}
"""Names of features, by a number of columns: how many combinations of so many columns an output has a row for that has
the target's values in all of them. They are of pairs only that expect them."""

EQUAL: Final = "target's value"
"""End of the name of a feature of a column: how many cells have the target's value."""

SHARE: Final = "share of cells with the target's value"
"""End of the name of a feature of a column. It is of pairs only that expect it, as is the next one."""

NEARER: Final = "share of numbers nearer to the target's than to the middle of D"
"""The same, where all numbers of D are the target's or another one: the median of an output in which it is at least one
half is nearer to the target's than to the middle of both."""


@dataclass(frozen=True, slots=True)
class Event:
    """That one feature of an output (`dpassay.attacks.black_box.output_features`) is at least a threshold."""

    feature: str
    threshold: float
