"""Checks by module classes that a model computes every row of a batch separately.

A forward pass is a composition of modules. It treats rows separately if each module does and no other code couples
them. `check` accepts the module classes listed here, whose code was reviewed for coupling of rows, and refuses all
others by name: mixtures of experts (the number of rows of an expert depends on the contents), batch normalisation,
quantisation with one scale for the whole batch, caches or sinks shared between rows, and everything that was not
reviewed. The structure implies nothing about rounding, which `row_shapes` verifies.

Two rope types choose their frequencies by the largest position of the whole forward pass, so one long record would
change every other row of the batch. `pin` computes their frequencies once, for the largest position that a run may use,
which is public.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

_DECODER = "Attention MLP RMSNorm RotaryEmbedding DecoderLayer Model ForCausalLM"
_TRANSFORMERS = {
    "gpt2": "GPT2Attention GPT2MLP GPT2Block GPT2Model GPT2LMHeadModel",
    "llama": f"Llama: {_DECODER}",
    "gemma": f"Gemma: {_DECODER} TextScaledWordEmbedding",
    "gemma2": f"Gemma2: {_DECODER} TextScaledWordEmbedding",
    "gemma3": f"Gemma3: {_DECODER} TextScaledWordEmbedding TextModel",
    "qwen2": f"Qwen2: {_DECODER}",
    "qwen3": f"Qwen3: {_DECODER}",
    "mistral": f"Mistral: {_DECODER}",
    "olmo": f"Olmo: {_DECODER} LayerNorm",
    "olmo2": f"Olmo2: {_DECODER}",
    "phi3": f"Phi3: {_DECODER}",
}
"""Architecture → its classes: a common prefix and suffixes, or full names."""

_ELEMENTWISE = "GELUTanh NewGELUActivation GELUActivation SiLUActivation FastGELUActivation QuickGELUActivation"
_TORCH = "Linear Embedding LayerNorm Dropout Identity SiLU GELU ReLU Tanh"

CHANGING_ROPE = ("dynamic", "longrope")
"""Rope types whose frequencies depend on the largest position of a forward pass."""


def _names() -> Iterator[str]:
    for architecture, listed in _TRANSFORMERS.items():
        prefix, _, rest = listed.rpartition(": ")
        for name in rest.split():
            yield f"transformers.models.{architecture}.modeling_{architecture}.{prefix}{name}"
    yield from (f"transformers.activations.{name}" for name in _ELEMENTWISE.split())
    yield from (f"torch.nn.modules.{_TORCH_FILES.get(name, 'activation')}.{name}" for name in _TORCH.split())
    yield "torch.nn.modules.container.ModuleList"
    yield "transformers.pytorch_utils.Conv1D"


_TORCH_FILES = {
    "Linear": "linear",
    "Identity": "linear",
    "Embedding": "sparse",
    "LayerNorm": "normalization",
    "Dropout": "dropout",
}
ACCEPTED = frozenset(_names())
"""The classes whose forward pass treats rows separately, by their full names."""


def check(network: torch.nn.Module) -> None:
    """Checks that every module of a network treats rows separately, by its class.

    Raises:
        ValueError: one line, which names the first unknown module.
    """
    for name, module in network.named_modules():
        where = f"module {name or 'model'}"
        kind = f"{type(module).__module__}.{type(module).__qualname__}"
        if kind not in ACCEPTED:
            raise ValueError(
                f"{where} is a {type(module).__name__}, which is not known to compute each row of a batch by itself; "
                f"use a model of one of these architectures: {', '.join(_TRANSFORMERS)}"
            )
        if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
            raise ValueError(f"{where} has a hook or its own forward function, which may couple rows; remove it")
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            if type(tensor.data) is not torch.Tensor:
                raise ValueError(
                    f"{where} holds a {type(tensor.data).__name__}, which may quantise all rows of a batch with one "
                    "scale; use weights in float32 or bfloat16"
                )


def pin(network: torch.nn.Module, positions: int | None) -> None:
    """Fixes position frequencies of a model of `transformers` that would otherwise depend on the longest row of a pass.

    Up to the length at which a model changes its frequencies, they are those of short sequences; beyond it, all rows,
    including short ones, get those that the model uses for a sequence of `positions` tokens, the largest number that
    any row may use. None undoes the change.
    """
    if getattr(network, "_dpassay_pinned", None) == positions:
        return
    for module in network.modules():
        for layer, rope in rope_types(module):
            original = vars(module).setdefault("_dpassay_rope_type", {}).setdefault(layer, rope)
            if original in CHANGING_ROPE:
                _pin(module, layer, original, positions)
    network._dpassay_pinned = positions  # type: ignore[assignment]


def _pin(module: Any, layer: str | None, rope: str, positions: int | None) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    prefix, given = ("", {}) if layer is None else (f"{layer}_", {"layer_type": layer})
    frequencies = getattr(module, f"{prefix}original_inv_freq").clone()
    parameters = module.config.rope_parameters if layer is None else module.config.rope_parameters[layer]
    unchanged_to = module.original_max_seq_len
    if rope == "longrope":
        unchanged_to = parameters["original_max_position_embeddings"]
    if positions is not None and positions > unchanged_to:
        computed, scaling = ROPE_INIT_FUNCTIONS[rope](module.config, frequencies.device, seq_len=positions, **given)
        frequencies = computed.to(frequencies.dtype)
        setattr(module, f"{prefix}attention_scaling", scaling)
    getattr(module, f"{prefix}inv_freq").data = frequencies
    now = rope if positions is None else "pinned"
    module.rope_type = now if layer is None else {**module.rope_type, layer: now}


def rope_types(module: Any) -> Iterator[tuple[str | None, str]]:
    """The rope types of a module by type of layer; None stands for all layers. Most modules have none."""
    results = vars(module).get("rope_type")
    if isinstance(results, dict):
        yield from list(results.items())
    elif isinstance(results, str):
        yield None, results
