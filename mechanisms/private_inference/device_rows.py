"""A batch of logits on a GPU, clipped, counted, sorted and summed there, so that only a few numbers per token leave it.

The results are bitwise equal to those of `dpassay.accounting.ex_post.clipped_rows`, in the same float64 arithmetic. If
most tokens are at the bottom of the clip, the logits are read three times: for the largest entry of each row, for the
comparison with the bottom, and to gather the few entries above it. The remaining work is proportional to these. It is
done in pieces, which bounds the additional memory.

The middle of B rows is found by `torch.kthvalue`, three or four times, along contiguous columns. On a GPU it uses a
block of threads for each column, one per row up to 1024 rows, and reads the column at most sixteen times, two bits at a
time, from the cache. `torch.sort` pads 129 to 1024 rows to 1024, and carries a 64-bit index with every number;
`torch.topk` selects half of the rows as `kthvalue` does and then sorts them. (From the source code of torch, not
measured.)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from dpassay.accounting.ex_post.clipped_rows import (
    GRID,
    MANY_COLUMNS,
    MANY_ENTRIES,
    NOT_NUMBERS,
    Steps,
    fill_outside,
    integer_clip,
)
from dpassay.base.arrays import Integers

ENTRIES = 2**24  # entries that are clipped at a time, 128 MiB of float64


class DeviceRows:
    """A batch of raw logits on any torch device, clipped on demand; like `LogitRows`.

    Args:
        logits: shape (B, V), float32 or float64. It must not change while this object is in use.
        clip: c.

    Raises:
        ValueError: as for `clip_steps`.
    """

    def __init__(self, logits: torch.Tensor, clip: float) -> None:
        self._limit = integer_clip(clip)
        if logits.ndim != 2 or logits.shape[1] == 0:
            raise ValueError(f"a batch needs shape (records, vocabulary), not {tuple(logits.shape)}")
        self._raw = logits if logits.dtype == torch.float64 else logits.float()
        self.shape: tuple[int, int] = (logits.shape[0], logits.shape[1])
        self._tops = self._raw.amax(dim=1).double()
        if not bool(torch.isfinite(self._tops).all()):
            raise ValueError(NOT_NUMBERS)
        least = (self._tops - 2 * self._limit * GRID).to(self._raw.dtype)
        self._least = torch.nextafter(least, torch.full_like(least, -torch.inf))  # see `LogitRows`
        self._live: torch.Tensor | None = None  # columns; None for all of them

    def on_device(self) -> torch.Tensor:
        """All clipped logits, shape (B, V), int32."""
        return self._clipped(self._raw)

    def steps(self) -> Steps:
        """All clipped logits on the CPU, shape (B, V)."""
        integers = np.empty(self.shape, dtype=np.int32)
        for part in self._parts(self.shape[1]):
            integers[:, part] = self._clipped(self._raw[:, part]).cpu().numpy()
        return integers

    def middle(self, ranks: range) -> tuple[Integers, Steps]:
        """The live columns and the batch sorted there; see `Rows`."""
        size, vocabulary = self.shape
        self._live = self._columns(ranks[-1])
        live = np.arange(vocabulary) if self._live is None else self._live.cpu().numpy()
        result = np.empty((len(ranks), len(live)), dtype=np.int32)
        inside = [rank for rank in ranks if 0 <= rank < size]
        if inside and len(live):
            indices = slice(inside[0] - ranks[0], inside[-1] - ranks[0] + 1)
            values = [_order_statistics(self._clipped(self._gathered(part)), inside) for part in self._parts(len(live))]
            result[indices] = torch.cat(values, dim=1).cpu().numpy()
        fill_outside(result, ranks, size, self._limit)
        return live, result

    def live_steps(self, part: slice) -> Steps:
        """Shape (B, columns), on the CPU; see `Rows`."""
        steps: Steps = self._clipped(self._gathered(part)).cpu().numpy()
        return steps

    def sums(self) -> Integers:
        """The sum over the rows, shape (V,), in grid steps.

        Clipped logits are added to −c·B as integers in float64, exact in any order up to 2²² rows.
        """
        size, vocabulary = self.shape
        total = torch.zeros(vocabulary, dtype=torch.float64, device=self._raw.device)
        height = max(1, ENTRIES // vocabulary)
        for start in range(0, size, height):
            rows = slice(start, start + height)
            block = self._raw[rows]
            row, column = torch.nonzero(block >= self._least[rows, None], as_tuple=True)
            if len(row) > MANY_ENTRIES * block.numel():
                total += self._above(block, self._tops[rows, None]).sum(dim=0)
            else:
                total.index_add_(0, column, self._above(block[row, column], self._tops[rows][row]))
        sums: Integers = total.cpu().numpy().astype(np.int64) - size * self._limit
        return sums

    def _columns(self, last: int) -> torch.Tensor | None:
        """Columns that may have an entry above the bottom at rank `last`; None for all, also if there are many."""
        size, vocabulary = self.shape
        if last >= size:
            return None
        counts = torch.zeros(vocabulary, dtype=torch.int32, device=self._raw.device)
        height = max(1, 4 * ENTRIES // vocabulary)
        for start in range(0, size, height):
            rows = slice(start, start + height)
            counts += (self._raw[rows] >= self._least[rows, None]).sum(dim=0, dtype=torch.int32)
        live = torch.nonzero(counts >= size - last)[:, 0]
        return live if len(live) <= MANY_COLUMNS * vocabulary else None

    def _gathered(self, part: slice) -> torch.Tensor:
        """The logits of some of the live columns, shape (B, columns)."""
        if self._live is None:
            return self._raw[:, part]
        return self._raw.index_select(1, self._live[part])

    def _clipped(self, raw: torch.Tensor) -> torch.Tensor:
        """Shape (B, columns), int32: max(−c, z − top + c) in grid steps."""
        return self._above(raw, self._tops[:, None]).sub_(self._limit).to(torch.int32)

    def _above(self, raw: torch.Tensor, tops: torch.Tensor) -> torch.Tensor:
        """How far clipped logits are above −c, in grid steps, float64: rounded as by `clip_steps`, plus 2c."""
        steps = raw.to(torch.float64, copy=True).sub_(tops).mul_(1 / GRID).round_()
        return steps.add_(2 * self._limit).clamp_min_(0.0)

    def _parts(self, columns: int) -> Iterator[slice]:
        width = max(1, ENTRIES // max(1, self.shape[0]))
        return (slice(start, min(start + width, columns)) for start in range(0, columns, width))


class CentredDeviceRows:
    """A batch of raw logits on any torch device, less public ones and clipped; bitwise equal to `centred_steps`.

    Every column counts as live. Unlike `DeviceRows`, the whole batch is kept as 32-bit numbers.

    Args:
        logits: shape (B, V), float32 or float64.
        public: shape (V,), in steps, clipped with `tail`.
        clip: c.
        tail: at most `MAX_TAIL`.

    Raises:
        ValueError: as for `centred_steps`.
    """

    def __init__(self, logits: torch.Tensor, public: Steps, clip: float, tail: float) -> None:
        self.shape: tuple[int, int] = (logits.shape[0], logits.shape[1])
        self._limit = integer_clip(clip)
        self._steps = torch.empty(self.shape, dtype=torch.int32, device=logits.device)
        wide = torch.from_numpy(public.astype(np.int64)).to(logits.device)
        height = max(1, ENTRIES // self.shape[1])
        for start in range(0, self.shape[0], height):
            rows = slice(start, start + height)
            row = DeviceRows(logits[rows], tail).on_device().long()
            shift = ((2 * row - wide).amax(dim=1) + (row - 2 * wide).amin(dim=1)) >> 1
            self._steps[rows] = (row - wide - shift[:, None]).clamp_(-self._limit, self._limit).int()

    def steps(self) -> Steps:
        """The whole batch on the CPU, shape (B, V)."""
        steps: Steps = self._steps.cpu().numpy()
        return steps

    def middle(self, ranks: range) -> tuple[Integers, Steps]:
        """All columns and the batch sorted there; see `Rows`."""
        size, vocabulary = self.shape
        result = np.empty((len(ranks), vocabulary), dtype=np.int32)
        inside = [rank for rank in ranks if 0 <= rank < size]
        width = max(1, ENTRIES // max(1, size))
        for start in range(0, vocabulary if inside else 0, width):
            columns = slice(start, start + width)
            values = _order_statistics(self._steps[:, columns], inside)
            result[inside[0] - ranks[0] : inside[-1] - ranks[0] + 1, columns] = values.cpu().numpy()
        fill_outside(result, ranks, size, self._limit)
        return np.arange(vocabulary), result

    def live_steps(self, part: slice) -> Steps:
        """Shape (B, columns), on the CPU; see `Rows`."""
        steps: Steps = self._steps[:, part].cpu().numpy()
        return steps

    def sums(self) -> Integers:
        """The sum over the rows, shape (V,), in grid steps."""
        sums: Integers = self._steps.sum(dim=0, dtype=torch.int64).cpu().numpy()
        return sums


def _order_statistics(steps: torch.Tensor, ranks: list[int]) -> torch.Tensor:
    """Rows of the sorted batch, shape (len(ranks), columns)."""
    columns = steps.T.contiguous()
    return torch.stack([torch.kthvalue(columns, rank + 1, dim=1).values for rank in ranks])
