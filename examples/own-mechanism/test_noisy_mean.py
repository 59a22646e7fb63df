"""Run with `pytest examples/own-mechanism`: the first test passes, the second fails and says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noisy_mean import CLIP, EPSILON, first_noisy_mean, noisy_mean

from dpassay.accounting import PureDP

OTHERS = [3, -2, 7, 0, 5]
WORST = {"data": [*OTHERS, -CLIP], "neighbor": [*OTHERS, CLIP], "adjacency": "replace_one"}


def test_the_mended_mean_keeps_its_claim(privacy_audit: Callable[..., Any]) -> None:
    privacy_audit(noisy_mean, PureDP(EPSILON), **WORST)


def test_the_first_mean_does_not(privacy_audit: Callable[..., Any]) -> None:
    privacy_audit(first_noisy_mean, PureDP(EPSILON), **WORST)
