"""Perplexities of a language model on serialised rows: of keys, of values, and of all other tokens.

Private, unless the rows are public.

Source: "DP-2Stage: Adapting Language Models as Differentially Private Tabular Data Generators", section C.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from dpassay.base import validate
from dpassay.data.table_schema import Row
from dpassay.mechanisms.two_stage.row_tokens import Role, RowTokens
from dpassay.utility.result import Result

if TYPE_CHECKING:
    from dpassay.mechanisms.models.language_model import LanguageModel


@dataclass(frozen=True)
class RowPerplexities(Result):
    """Perplexities exp(mean of −log p(token | tokens before it)) over the tokens of a role, at least 1.

    Attributes:
        key: of names of columns, and of what stands between them and values.
        value: of values.
        other: of separators and the end of a row.
        all: of all tokens.
        rows: number of rows.
    """

    key: float
    value: float
    other: float
    all: float
    rows: int


@torch.inference_mode()
def row_perplexities(
    model: LanguageModel,
    tokens: RowTokens,
    rows: Sequence[Row],
    *,
    shuffle: bool = False,
    seed: int = 0,
    rows_at_once: int = 16,
) -> RowPerplexities:
    """The perplexities of a model on rows.

    The mean is over all tokens of a role in all rows. The first token of a row is given, and not predicted.

    Args:
        model: which predicts tokens.
        tokens: how rows are serialised, with the model's tokenizer.
        rows: in the words of the schema, at least one.
        shuffle: whether each row has its columns in an order of its own; a model cannot foresee the next key then.
        seed: of the orders.
        rows_at_once: number of rows of one forward pass.

    Raises:
        ValueError: if there is no row.
    """
    validate.integer(minimum=1, rows_at_once=rows_at_once)
    if not len(rows):
        raise ValueError("perplexities are of at least one row; there is none")
    rng = np.random.default_rng(seed)
    sums, counts = torch.zeros(len(Role), dtype=torch.float64), torch.zeros(len(Role), dtype=torch.float64)
    for start in range(0, len(rows), rows_at_once):
        encoded = []
        for row in rows[start : start + rows_at_once]:
            order = rng.permutation(len(row)).tolist() if shuffle else range(len(row))
            encoded.append(tokens.encoded({index: row[index] for index in order}))
        roles = torch.cat([torch.tensor(of[1:]) for _, of in encoded])
        sums.index_add_(0, roles, _losses(model, [ids for ids, _ in encoded]))
        counts += roles.bincount(minlength=len(Role))
    by_role = (sums / counts).exp()
    return RowPerplexities(
        key=float(by_role[Role.KEY]),
        value=float(by_role[Role.VALUE]),
        other=float(by_role[Role.OTHER]),
        all=math.exp(float(sums.sum() / counts.sum())),
        rows=len(rows),
    )


def _losses(model: LanguageModel, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """−log p of each token but the first of each row, one row after the other, float64.

    Rows are padded on the right, where causal attention does not see the padding.
    """
    width = max(map(len, rows))
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
    is_predicted = torch.arange(1, width) < torch.tensor([len(row) for row in rows])[:, None]
    ids = ids.to(model.device)
    indices = torch.arange(width - 1, device=model.device).expand(len(rows), -1)
    logits = model.network(input_ids=ids[:, :-1], position_ids=indices, use_cache=False).logits
    logits = logits[..., : model.vocabulary_size].float()
    result = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    return result.double().cpu()[is_predicted]
