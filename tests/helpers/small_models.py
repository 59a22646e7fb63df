"""Small language models with random weights, in the shapes of `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS = [
    "My 5-digit key is 04821",
    "the doctor said that the patient came twice",
    "0123456789 abcdefghijklmnopqrstuvwxyz",
]

END = "<|end|>"


def byte_tokenizer(**special: str) -> Any:
    """A byte-level BPE tokenizer of 300 tokens, token 0 is the end of text; no pad token unless one is named."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[END, *special.values()],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, **special)


COMMON = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "eos_token_id": 0,
    "bos_token_id": None,
    "pad_token_id": None,
}


def config(architecture: str, vocabulary: int) -> Any:
    """A tiny configuration; windows of 6 so that sliding attention forgets within the tests' sequences."""
    own = {**COMMON, "vocab_size": vocabulary}
    mixed = ["sliding_attention", "full_attention", "sliding_attention"]
    match architecture:
        case "gpt2":
            return transformers.GPT2Config(
                vocab_size=vocabulary, n_positions=128, n_embd=32, n_layer=3, n_head=4, eos_token_id=0, bos_token_id=0
            )
        case "llama":
            return transformers.LlamaConfig(**own)
        case "gemma2":
            return transformers.Gemma2Config(
                **own, sliding_window=6, layer_types=mixed, query_pre_attn_scalar=8, attn_logit_softcapping=2.0
            )
        case "gemma3":
            return transformers.Gemma3TextConfig(**own, sliding_window=6, layer_types=mixed, query_pre_attn_scalar=8)
        case "qwen2":
            return transformers.Qwen2Config(
                **own, use_sliding_window=True, sliding_window=6, max_window_layers=1, layer_types=mixed
            )
        case "qwen3":
            return transformers.Qwen3Config(**own)
        case "mistral":
            return transformers.MistralConfig(**own, sliding_window=6)
        case "gemma":
            return transformers.GemmaConfig(**own)
        case "olmo":
            return transformers.OlmoConfig(**{key: value for key, value in own.items() if key != "head_dim"})
        case "olmo2":
            return transformers.Olmo2Config(**{key: value for key, value in own.items() if key != "head_dim"})
        case "phi3":
            return transformers.Phi3Config(**{key: value for key, value in own.items() if key != "head_dim"})
        case "phi3-longrope" | "llama-dynamic" | "gemma3-dynamic":
            return changing_rope(architecture, vocabulary)
    raise ValueError(architecture)


CHATS = {
    "gemma": (
        ("<bos>", "<start_of_turn>", "<end_of_turn>"),
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{% for message in messages %}{% if message['role'] == 'assistant' %}{% set role = 'model' %}"
        "{% else %}{% set role = message['role'] %}{% endif %}"
        "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
    ),
    "llama3": (
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "{{- bos_token }}{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') %}"
        "{%- endif %}{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: ' + date_string + '<|eot_id|>' }}"
        "{%- for message in messages %}{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' "
        "+ message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}",
    ),
}
"""Chat templates in the shapes of Gemma's and Llama 3's: their special tokens, the beginning of a text first."""


def changing_rope(architecture: str, vocabulary: int) -> Any:
    """Frequencies that a forward pass of more than 32 positions changes, and strongly, for all of its rows."""
    own: dict[str, Any] = {**COMMON, "vocab_size": vocabulary}
    del own["head_dim"]
    rope: dict[str, Any] = {"rope_theta": 10_000.0, "original_max_position_embeddings": 32}
    if architecture == "llama-dynamic":
        own["max_position_embeddings"] = 32
        return transformers.LlamaConfig(**own, rope_parameters=rope | {"rope_type": "dynamic", "factor": 4.0})
    if architecture == "gemma3-dynamic":
        kinds = {"sliding_attention": "default", "full_attention": "dynamic"}
        parameters = {kind: {"rope_type": name, "rope_theta": 10_000.0, "factor": 4.0} for kind, name in kinds.items()}
        own |= {"max_position_embeddings": 32, "layer_types": ["sliding_attention", "full_attention"] * 2}
        own |= {"sliding_window": 100, "head_dim": 8, "num_hidden_layers": 4}
        return transformers.Gemma3TextConfig(**own, query_pre_attn_scalar=8, rope_parameters=parameters)
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0, 6.0, 8.0, 12.0]}
    changing = rope | factors | {"rope_type": "longrope"}
    return transformers.Phi3Config(**own, original_max_position_embeddings=32, rope_parameters=changing)


ARCHITECTURES = ("gpt2", "llama", "gemma", "gemma2", "gemma3", "qwen2", "qwen3", "mistral", "olmo", "olmo2", "phi3")


def save_model(
    folder: Path,
    architecture: str = "gpt2",
    *,
    scale: float = 8.0,
    chat: str | None = None,
    positions: int = 128,
    **special: str,
) -> Path:
    """Writes a model with random weights; `scale` sharpens its predictions, which are near uniform at first.

    Args:
        folder: where.
        architecture: one of `ARCHITECTURES`, or one of `changing_rope`.
        scale: of the weights.
        chat: whose chat template the tokenizer gets, one of `CHATS`.
        positions: the largest number of tokens; not for GPT-2, whose positions have weights.
        special: tokens by name.
    """
    tokenizer = byte_tokenizer(**special)
    if chat is not None:
        tokens, tokenizer.chat_template = CHATS[chat]
        tokenizer.add_tokens([AddedToken(token, special=True) for token in tokens])
        tokenizer.bos_token = tokens[0]
    torch.manual_seed(0)
    network = transformers.AutoModelForCausalLM.from_config(config(architecture, len(tokenizer)))
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() > 1:
                weight *= scale
    if architecture != "gpt2":
        network.config.max_position_embeddings = positions
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
