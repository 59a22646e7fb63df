"""The network that is trained: a copy of a model, with all weights or with LoRA matrices beside its linear layers."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch

from dpassay.mechanisms.models.fine_tuning import fingerprint
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.two_stage.gradients import quiet


def trainable(model: LanguageModel, lora_rank: int) -> LanguageModel:
    """A copy of a model in float32 and in training mode, without dropout: matrices of a LoRA rank beside each linear
    layer except the last are trained alone; at rank 0, all weights."""
    network = copy.deepcopy(model.network).float()
    quiet(network)
    if lora_rank:
        network = _with_lora(network, lora_rank)
    else:
        network.requires_grad_(True)
    return dataclasses.replace(model, network=network, name=f"{model.name} (fine-tuned)")


def finished(model: LanguageModel) -> LanguageModel:
    """The model after training, with LoRA matrices merged into its weights."""
    network = model.network.merge_and_unload() if hasattr(model.network, "merge_and_unload") else model.network
    network.requires_grad_(False)
    network.eval()
    return dataclasses.replace(model, network=network, fingerprint=fingerprint(network))


def _with_lora(network: Any, rank: int) -> Any:
    """The network with LoRA matrices; the second of each pair begins at 0, the first is drawn with a fixed seed."""
    from peft import LoraConfig, get_peft_model
    from transformers.pytorch_utils import Conv1D

    transposed = any(isinstance(module, Conv1D) for module in network.modules())
    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", fan_in_fan_out=transposed
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return get_peft_model(network, config)
