"""Steps of gradient descent: what one releases, and the state that a run resumes from.

A step of the second stage releases the sum of the clipped gradients of a Poisson sample of rows, with Gaussian noise. A
row's gradient is clipped to length C and rounded toward zero on a grid, so that sums are exact integers, whatever their
order, and adding or removing a row moves one by a vector of length at most C. Noise is normal, rounded down on the same
grid, which is post-processing (`rounded_normal`). All that follows (the division by the public, expected number of
rows, AdamW, the next weights) is computed from released sums and public numbers.

Proof: docs/proofs/two-stage.md, Theorem 1.

Source: Abadi et al., "Deep Learning with Differential Privacy" (2016), Algorithm 1; Loshchilov and Hutter, "Decoupled
Weight Decay Regularization" (2019), Algorithm 2.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.gaussian import sum_sensitivity
from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers
from dpassay.base.atomic_file import replacing
from dpassay.base.errors import naming
from dpassay.mechanisms.primitives.charged import RunMismatchError
from dpassay.mechanisms.primitives.randomness import Source
from dpassay.mechanisms.primitives.rounded_normal import MAX_BITS

_RADIUS = 24  # length C is about 2²⁴ units
_LARGEST = 2**26  # squares of lengths stay below 2⁵³, and sums of 2²⁷ rows


@dataclass(frozen=True, slots=True)
class GradientGrid:
    """The grid of sums of gradients: length C is `radius` units, and the noise has standard deviation 2^bits units;
    None for no noise."""

    radius: int
    bits: int | None

    @classmethod
    def of(cls, noise_multiplier: float, adjacency: Adjacency) -> GradientGrid:
        """The grid on which noise of standard deviation 2ᵇ is at least `noise_multiplier` times the sensitivity.

        The radius is the largest whole number with k · radius · noise_multiplier ≤ 2ᵇ, compared exactly.
        """
        if validate.non_negative(noise_multiplier=noise_multiplier) == 0:
            return cls(2**_RADIUS, None)
        scale = Fraction(noise_multiplier) * sum_sensitivity(adjacency)
        bits = min(MAX_BITS, max(0, _RADIUS + math.frexp(float(scale))[1] - 1))
        radius = math.floor(2**bits / scale)
        if not 1 <= radius <= _LARGEST:
            raise ValueError(f"noise_multiplier is out of range of the grid: {noise_multiplier!r}")
        return cls(radius, bits)


def clipped_sum(gradients: Iterable[NDArray[np.floating]], clip: float, size: int, grid: GradientGrid) -> Integers:
    """The sum of gradients, in pieces of shape (n, size), clipped to C, in units of the grid, shape (size,); one whose
    length is not finite counts as 0."""
    total, integers = np.zeros(size), np.empty(size)  # whole numbers below 2⁵³, of which sums are exact
    for piece in gradients:
        for gradient in piece:
            total += clipped(gradient, clip, grid, integers)
    return total.astype(np.int64)


def clipped(gradient: NDArray[np.floating], clip: float, grid: GradientGrid, out: Floats | None = None) -> Floats:
    """A gradient in units of the grid: of length at most `grid.radius`, rounded toward zero; shape (size,).

    The length of what is returned is compared with the radius exactly: squares add up to whole numbers below 2⁵³. So it
    holds however the gradient, its length and the quotient were rounded.
    """
    integers = np.empty(gradient.size) if out is None else out
    integers[:] = gradient
    length = math.sqrt(float(integers @ integers))
    scale = grid.radius / max(length, clip)
    if not (length < math.inf and scale < math.inf):  # not a number, either
        integers[:] = 0.0
        return integers
    integers *= scale
    np.trunc(integers, out=integers)
    while integers @ integers > grid.radius**2:
        integers *= 1 - 2.0**-20
        np.trunc(integers, out=integers)
    return integers


def noisy_mean(total: Integers, clip: float, expected: float, grid: GradientGrid, source: Source) -> Floats:
    """A sum with noise, divided by the public, expected number of rows; without noise it must not be released."""
    noise = 0 if grid.bits is None else source.rounded_normals(total.size, grid.bits)
    return np.asarray((total + noise) * (clip / grid.radius / expected), dtype=np.float64)


class Descent:
    """AdamW on some parameters of a network.

    Args:
        parameters: trained; their names and order are public.
        learning_rate, weight_decay: of AdamW.
    """

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], learning_rate: float, weight_decay: float) -> None:
        self.parameters = dict(parameters)
        self._optimizer = torch.optim.AdamW(
            list(self.parameters.values()), lr=learning_rate, weight_decay=weight_decay, foreach=False
        )

    def step(self, gradient: NDArray[np.floating]) -> None:
        """One step along a gradient, of shape (size,) in the order of the parameters."""
        start = 0
        for weight in self.parameters.values():
            piece = torch.from_numpy(np.ascontiguousarray(gradient[start : start + weight.numel()]))
            weight.grad = piece.reshape(weight.shape).to(weight)
            start += weight.numel()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, torch.Tensor]:
        """The weights and the optimiser's moments, by name."""
        results = {f"weight/{name}": weight.detach().cpu().contiguous() for name, weight in self.parameters.items()}
        for name, weight in self.parameters.items():
            for part, value in self._optimizer.state.get(weight, {}).items():
                results[f"{part}/{name}"] = torch.as_tensor(value).detach().cpu().contiguous()
        return results

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restores what `state` returned."""
        moments: dict[str, dict[str, torch.Tensor]] = {}
        for key, value in state.items():
            part, _, name = key.partition("/")
            if part == "weight":
                with torch.no_grad():
                    self.parameters[name].copy_(value)
            else:
                moments.setdefault(name, {})[part] = value
        names = list(self.parameters)
        state = self._optimizer.state_dict()
        state["state"] = {names.index(name): parts for name, parts in moments.items()}
        self._optimizer.load_state_dict(state)


SCORES = "scores"


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Files of states in a private folder, one for each saved step, each bound to its run by a hash; their names begin
    with the stage."""

    folder: Path
    stage: str

    def path(self, step: int) -> Path:
        """The file of a step."""
        return self.folder / f"{self.stage}-{step}.safetensors"

    def save(self, step: int, descent: Descent, about: str, scores: Floats | None = None) -> str:
        """Writes the state after so many steps atomically, with the scores of an observer; returns the file's SHA-256.
        `about` is a digest of everything that determines a run, which must be equal on resume."""
        from safetensors.torch import save

        state = descent.state() | ({} if scores is None else {SCORES: torch.from_numpy(scores.copy())})
        content = save(state, {"about": about, "step": str(step)})
        with naming(self.path(step)), replacing(self.path(step)) as file:
            file.write(content)
        return hashlib.sha256(content).hexdigest()

    def load(self, step: int, descent: Descent, sha256: str) -> Floats | None:
        """Restores the state after a step; returns the scores of an observer that were saved with it.

        Raises:
            RunMismatchError: if the file is missing or another one.
        """
        from safetensors.torch import load

        try:
            content = self.path(step).read_bytes()
        except FileNotFoundError:
            content = b""
        if hashlib.sha256(content).hexdigest() != sha256:
            raise RunMismatchError(
                f"{self.path(step)}: is missing, or is not the checkpoint of the interrupted run, whose steps are "
                "charged; restore it, or start a new run in a new folder"
            )
        state = load(content)
        scores = state.pop(SCORES, None)
        descent.load(state)
        return None if scores is None else np.asarray(scores.numpy(), dtype=np.float64)

    def keep(self, step: int) -> None:
        """Removes the files of all other steps."""
        for path in self.folder.glob(f"{self.stage}-*.safetensors"):
            if path != self.path(step):
                path.unlink(missing_ok=True)

    def latest(self, about: str) -> tuple[int, Any] | None:
        """The last saved step of a public stage, and its state; None if there is none for these settings.

        A damaged file counts as missing: a public stage can be computed again.
        """
        from safetensors import SafetensorError, safe_open
        from safetensors.torch import load

        result: tuple[int, Any] | None = None
        for path in self.folder.glob(f"{self.stage}-*.safetensors"):
            try:
                with safe_open(path, "pt") as file:
                    said = file.metadata() or {}
                step = int(said.get("step", -1))
                if said.get("about") == about and path == self.path(step) and (result is None or step > result[0]):
                    result = step, load(path.read_bytes())
            except (SafetensorError, ValueError, OSError):
                continue
        return result
