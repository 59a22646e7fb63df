"""The mean of ages, with noise: as it was written first, and mended.

Ages are whole numbers in [-CLIP, CLIP] after centring and clipping, their number is public, and neighbours have one
record exchanged (replace_one).
"""

from __future__ import annotations

from collections.abc import Sequence

from dpassay.mechanisms.primitives import OS_ENTROPY, Source

CLIP = 10
EPSILON = 1.0


def first_noisy_mean(values: Sequence[int], source: Source = OS_ENTROPY) -> float:
    """Claims ε = 1 and has a bug: a record that is exchanged can move the sum from -CLIP to CLIP, by 2·CLIP."""
    return _noisy_sum(values, CLIP / EPSILON, source) / len(values)


def noisy_mean(values: Sequence[int], source: Source = OS_ENTROPY) -> float:
    """ε-differentially private: noise of scale 2·CLIP/ε on a whole number."""
    return _noisy_sum(values, 2 * CLIP / EPSILON, source) / len(values)


def _noisy_sum(values: Sequence[int], scale: float, source: Source) -> int:
    clipped = [min(max(value, -CLIP), CLIP) for value in values]
    return sum(clipped) + int(source.discrete_laplace(1, scale)[0])
