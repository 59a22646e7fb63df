"""Scores of canaries of which fair coins chose: by the gradients of all steps, by the model, and by synthetic rows.

The adversary knows every other row, all canaries, and the weights after each step, which reveal the noisy mean gradient
between two of them. It inserts two kinds of canaries: *spikes*, whose gradient is a single coordinate, the worst case
of the guarantee; and rows of values that stand together in no row of the table.

Source: Nasr et al., "Tight Auditing of Differentially Private Machine Learning" (2023), section 4, for gradients of
one coordinate; Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (2023), for many canaries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from dpassay.attacks.canaries import rows as gower
from dpassay.base.arrays import Floats
from dpassay.data.table_schema import NumberColumn, Row, Schema
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.two_stage.descent import GradientGrid
from dpassay.mechanisms.two_stage.row_tokens import Role, RowTokens
from dpassay.mechanisms.two_stage.training import TwoStageTraining

SPIKES = "likelihood ratio of the released gradients of all steps, at the coordinate of a canary"
LIKELIHOOD = "log-likelihood of a canary, less that under the claimed run's model"
NEAREST = "distance of a canary to the nearest synthetic row"

_ROWS = 64


class SpikeScores:
    """Scores of spikes by the gradients that training releases; an observer of `TwoStageTraining`.

    In units of the clip, a released sum is at a spike's coordinate its sign, if it is in the batch, plus noise and the
    small rest of other records. The score is the sum over steps of the log-likelihood ratio of the two possibilities,
    log(1 − q + q·exp((x − ½)/σ²)) for one that is in the data or not; without noise it is the sum of x.

    Args:
        count: number of spikes.
        swapped: whether a coin chooses the sign of a spike, and not whether it is in the data.
    """

    def __init__(self, count: int, *, swapped: bool) -> None:
        self.scores: Floats = np.zeros(count)
        self._swapped = swapped

    def see(self, step: int, released: Floats, training: TwoStageTraining) -> None:
        """Adds a step."""
        mechanism = training.mechanism
        grid = GradientGrid.of(mechanism.noise_multiplier, mechanism.adjacency)
        x = released[training.spikes.coordinates(released.size)] * (mechanism.batch_size / mechanism.clip)
        scale = 0.0 if grid.bits is None else 2.0**grid.bits / grid.radius
        result = _log_ratio(x, scale, min(1.0, mechanism.rate))
        if self._swapped:
            result = result - _log_ratio(-x, scale, min(1.0, mechanism.rate))
        self.scores = self.scores + result


def _log_ratio(x: Floats, scale: float, rate: float) -> Floats:
    """log of the density of (1 − q)·N(0, σ²) + q·N(1, σ²) over that of N(0, σ²); x if σ is 0."""
    if not scale:
        return x
    with np.errstate(divide="ignore"):
        sides = np.log1p(-rate), np.log(rate) + (x - 0.5) / scale**2
    return np.asarray(np.logaddexp(*sides), dtype=np.float64)


def log_likelihoods(model: LanguageModel, tokens: RowTokens, rows: Sequence[Row]) -> Floats:
    """Σ log p over the tokens of the values of each row, in the order of the schema, shape (rows,)."""
    results = []
    for start in range(0, len(rows), _ROWS):
        results.append(_of_values(model, tokens, rows[start : start + _ROWS]))
    return np.concatenate(results) if results else np.zeros(0)


@torch.inference_mode()
def _of_values(model: LanguageModel, tokens: RowTokens, rows: Sequence[Row]) -> Floats:
    ids = torch.zeros(len(rows), tokens.width, dtype=torch.long)
    own = torch.zeros(len(rows), tokens.width - 1, dtype=torch.bool)
    for index, row in enumerate(rows):
        encoded, roles = tokens.encoded(dict(enumerate(row)))
        ids[index, : len(encoded)] = torch.tensor(encoded)
        own[index, : len(encoded) - 1] = torch.tensor([role is Role.VALUE for role in roles[1:]])
    ids, own = ids.to(model.device), own.to(model.device)
    logits = model.network(input_ids=ids[:, :-1], use_cache=False).logits[..., : model.vocabulary_size].double()
    each = -torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    return np.asarray((each * own).sum(dim=1).cpu().numpy(), dtype=np.float64)


def distances(canaries: Sequence[Row], synthetic: Sequence[Row], schema: Schema) -> Floats:
    """Gower's distance of each canary to the nearest synthetic row, shape (canaries,).

    Numbers are compared relative to their public domain; dates and categories are equal or not.
    """
    columns = []
    for index, column in enumerate(schema.columns):
        if isinstance(column, NumberColumn):
            columns.append(gower.ColumnRange(column.name, "number", column.low, column.high, column.decimals))
        else:
            words = dict.fromkeys(row[index] for side in (canaries, synthetic) for row in side)
            columns.append(gower.ColumnRange(column.name, "word", values=tuple(words)))
    sides = [[dict(zip(schema.names, row, strict=True)) for row in side] for side in (canaries, synthetic)]
    return gower.nearest(sides[0], columns, sides[1])[0]
