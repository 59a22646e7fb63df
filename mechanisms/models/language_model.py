"""Causal language models of `transformers`, loaded from a folder, a hub id or the package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dpassay.base import defaults, validate
from dpassay.mechanisms.models import chat_templates, model_folder, row_modules, row_shapes
from dpassay.mechanisms.models.decoding import FixedRows, PackedRows, RowShape, layer_kinds
from dpassay.mechanisms.models.model_folder import BUILTIN
from dpassay.mechanisms.models.quiet_loading import quiet_loading

_ROWS, _LONGEST, _STEPS = 16, 64, 4  # of the spot check: rows, tokens of the longest row, tokens of a continuation
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_CHECK_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.1}


@dataclass(eq=False)
class LanguageModel:
    """A causal language model and its tokenizer.

    Attributes:
        name: ``builtin``, the hub id or the folder's name.
        fingerprint: SHA-256 over the files of weights, configuration and tokenizer.
        vocabulary_size: V, the number of tokens that can be sampled: those that the tokenizer knows.
        end_of_text_ids: tokens that end a document: the tokenizer's end of text, and those in the model's generation
            configuration.
        context_length: the largest number of positions.
        row_difference: the largest difference of a logit in a public spot check when the model was loaded
            (`check_rows`), between a row in a batch, in a smaller batch, and alone. An observation, not a bound.
        is_builtin: whether a context is simply records separated by end-of-text tokens.
        source: what it was loaded from, a folder by its absolute path.
    """

    name: str
    fingerprint: str
    vocabulary_size: int
    end_of_text_ids: tuple[int, ...]
    beginning_ids: tuple[int, ...]
    context_length: int
    is_builtin: bool
    network: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    row_difference: float = 0.0
    source: str = BUILTIN
    _shapes: dict[RowShape, tuple[RowShape, bool]] = field(default_factory=dict, repr=False)
    _bits: dict[RowShape, str] = field(default_factory=dict, repr=False)

    @classmethod
    def load(
        cls,
        source: str | Path = BUILTIN,
        device: str = "auto",
        *,
        dtype: str = "auto",
        allow_network: bool = False,
    ) -> LanguageModel:
        """Loads a model; only safetensors are loaded, and no code of the model is run.

        Args:
            source: ``builtin``, a local folder, or a hub id such as ``google/gemma-2-2b``.
            device: ``auto`` (a GPU if there is one), ``cpu`` or ``cuda``.
            dtype: of the model's arithmetic: ``float32``, ``bfloat16`` or ``auto`` (bfloat16 on a GPU, else float32).
                Logits are returned as float32, and are clipped, aggregated and sampled as integers and float64.
            allow_network: whether a hub id may be downloaded; otherwise it must be in the local cache.

        Raises:
            ValueError: one line, if this is not a supported causal language model.
        """
        validate.one_of(defaults.DEVICES, device=device)
        validate.one_of(("auto", *_DTYPES), dtype=dtype)
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device is cuda, but no GPU is visible; use cpu or auto")
        folder = model_folder.locate(str(source), allow_network)
        name = str(source) if not Path(source).exists() else Path(source).resolve().name
        if dtype == "auto":
            dtype = "bfloat16" if device == "cuda" else "float32"
        try:
            with quiet_loading():
                network, tokenizer = _load(folder, device, _DTYPES[dtype])
        except Exception as error:  # a folder may be invalid in any way; a user needs one line
            reason = " ".join(str(error).split()) or type(error).__name__
            if "ignore_mismatched_sizes" in reason:
                reason = "its weights have other shapes than config.json states"
            raise ValueError(f"model {str(source)!r} cannot be loaded: {reason[:200]}") from None
        try:
            model = cls._of(name, folder, network, tokenizer, is_builtin=str(source) == BUILTIN)
            model.check_rows()
            model.source = str(Path(source).resolve()) if Path(source).exists() else str(source)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(
                f"model {name}: this architecture or configuration is not supported ({type(error).__name__} in its "
                "forward pass)"
            ) from None
        return model

    @classmethod
    def _of(cls, name: str, folder: Path, network: Any, tokenizer: Any, *, is_builtin: bool) -> LanguageModel:
        ends = network.generation_config.eos_token_id if network.can_generate() else network.config.eos_token_id
        ends = [] if ends is None else list(ends) if isinstance(ends, list | tuple) else [ends]
        if tokenizer.eos_token_id is not None:
            ends.insert(0, tokenizer.eos_token_id)
        if not all(type(end) is int for end in ends):
            raise ValueError(f"model {name}: eos_token_id must be whole numbers")
        rows = network.get_input_embeddings().weight.shape[0]
        if not 1 < tokenizer.vocab_size <= rows:
            raise ValueError(
                f"model {name}: its tokenizer has {tokenizer.vocab_size} tokens but its weights have {rows}; they do "
                "not belong together, or files of the tokenizer are missing"
            )
        vocabulary = min(len(tokenizer), rows, network.get_output_embeddings().weight.shape[0])
        start = tokenizer.bos_token_id
        length = getattr(network.config, "max_position_embeddings", None) or tokenizer.model_max_length
        return cls(
            name=name,
            fingerprint=model_folder.fingerprint(folder),
            vocabulary_size=vocabulary,
            end_of_text_ids=tuple(dict.fromkeys(i for i in ends if i < vocabulary)),
            beginning_ids=(start,) if start is not None and start < rows and not is_builtin else (),
            context_length=int(length),
            is_builtin=is_builtin,
            network=network,
            tokenizer=tokenizer,
        )

    @property
    def end_of_text_id(self) -> int | None:
        """The token that ends a document; None if the model has none."""
        return self.end_of_text_ids[0] if self.end_of_text_ids else None

    @property
    def device(self) -> torch.device:
        return torch.device(self.network.device)

    @property
    def dtype(self) -> str:
        """The data type of the model's arithmetic, for example ``float32``."""
        return str(self.network.dtype).removeprefix("torch.")

    @property
    def bytes_per_position(self) -> int:
        """Bytes of keys and values for one position of one row."""
        config: Any = self.network.config
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return int(2 * config.num_hidden_layers * heads * width * self.network.dtype.itemsize)

    @cached_property
    def end_of_turn_ids(self) -> tuple[int, ...]:
        """The token that ends an answer in the tokenizer's chat template, which is rendered; empty without one."""
        result = chat_templates.end_of_turn_ids(self.tokenizer)
        return tuple(i for i in result if i < self.vocabulary_size)

    def chat(self, text: str) -> str:
        """A user's turn with this text and the beginning of an answer, by the tokenizer's chat template."""
        return chat_templates.chat(self.tokenizer, text)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without special tokens and without tokens for which the model has no embedding."""
        rows = self.network.get_input_embeddings().weight.shape[0]
        # Without `verbose=False`, the length of a text beyond the model's context would be logged.
        ids = self.tokenizer.encode(text, add_special_tokens=False, verbose=False)
        return [token for token in ids if token < rows]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special tokens; spaces are kept."""
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def packed_rows(self, contexts: Sequence[Sequence[int]], *, rows_per_forward: int = 4096) -> PackedRows:
        """Rows that are continued token by token, one for each context, in shapes that depend on the rows.

        Args:
            contexts: token ids, at least one in each.
            rows_per_forward: the largest number of rows in one forward pass.
        """
        return PackedRows(
            self.network, contexts, vocabulary_size=self.vocabulary_size, rows_per_forward=rows_per_forward
        )

    def fixed_rows(self, contexts: Sequence[Sequence[int]], shape: RowShape) -> FixedRows:
        """Rows that are continued token by token, one for each context, in forward passes of one public shape.

        Args:
            contexts: token ids, 1 to `shape.context` in each.
            shape: of `row_shape`.
        """
        return FixedRows(self.network, contexts, shape=shape, vocabulary_size=self.vocabulary_size)

    def row_shape(self, wanted: RowShape) -> tuple[RowShape, bool]:
        """The shape of a run's forward passes, and whether rows are verified to be exact at it (`row_shapes`).

        Args:
            wanted: the shape with the largest useful number of rows.
        """
        if wanted not in self._shapes:
            self._shapes[wanted] = row_shapes.find(self.network, self.vocabulary_size, wanted)
        return self._shapes[wanted]

    def row_bits(self, shape: RowShape) -> str:
        """SHA-256 of the logits of public rows at a shape, by this machine and its number of threads."""
        if shape not in self._bits:
            self._bits[shape] = row_shapes.bits(self.network, self.vocabulary_size, shape)
        return self._bits[shape]

    def check_modules(self) -> None:
        """Checks that every module of the model computes each row of a batch separately, by its class (`row_modules`).

        Raises:
            ValueError: one line, which names the first unknown module.
        """
        try:
            row_modules.check(self.network)
        except ValueError as error:
            raise ValueError(f"model {self.name}: {error}") from None

    @torch.inference_mode()
    def plain_logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """Logits of the next token of a single sequence, shape (V,), float32, without our own cache."""
        return self._logits_of(tokens, 1)[0]

    def _logits_of(self, tokens: Sequence[int], count: int) -> torch.Tensor:
        """Logits after each of the last `count` tokens of a single sequence, shape (count, V), float32."""
        ids = torch.tensor([list(tokens)], device=self.device)
        logits: torch.Tensor = self.network(input_ids=ids, use_cache=False, logits_to_keep=count).logits
        return logits[0, -count:, : self.vocabulary_size].float()

    @torch.inference_mode()
    def check_rows(self) -> None:
        """Computes the logits of public rows in three ways, and stores the largest difference in `row_difference`.

        `_ROWS` rows of pseudo-random tokens, of 1 to min(context_length/2, 64) tokens each, are continued twice by a
        few tokens, a quarter of them after a reset to their contexts: in one batch; with one row removed; and each row
        alone, without a cache. It checks that the decode loop agrees with the model. It does not bound the effect of
        other rows in general.

        Raises:
            ValueError: if the differences exceed rounding: the architecture is not supported.
        """
        longest = max(1, min(self.context_length // 2, _LONGEST))
        steps = max(1, min(self.context_length // 4, _STEPS))
        rng = np.random.default_rng(0)
        lengths = [1 + row * (longest - 1) // (_ROWS - 1) for row in range(_ROWS)]
        contexts = [rng.integers(self.vocabulary_size, size=length).tolist() for length in lengths]
        tails = torch.from_numpy(rng.integers(self.vocabulary_size, size=(_ROWS, 2 * steps)))
        again = torch.arange(_ROWS) % 4 == 3
        row_modules.pin(self.network, longest + 2 * steps)  # frequencies that depend on the longest row are excluded
        beside, fewer = self._stepped(contexts, tails, again), self._stepped(contexts[1:], tails[1:], again[1:])
        largest = size = 0.0
        for row, context in enumerate(contexts):
            first, second = tails[row, :steps].tolist(), tails[row, steps:].tolist()
            if again[row]:
                alone = torch.cat([self._logits_of([*context, *tail[:-1]], steps) for tail in (first, second)])
            else:
                alone = self._logits_of([*context, *first, *second[:-1]], 2 * steps)
            ways = torch.stack([alone, beside[row], *fewer[row - 1 : row]])  # `fewer` does not have the first row
            if not bool((ways < torch.inf).all()):  # comparisons with NaN are false
                raise ValueError(f"model {self.name}: some logits are not finite; its weights are damaged")
            largest = max(largest, float((ways.amax(dim=0) - ways.amin(dim=0)).max()))
            size = max(size, float(ways.abs().max()))
        row_modules.pin(self.network, None)
        # Half-precision logits are rounded relative to their size: a step is 2⁻⁴ for bfloat16 logits of 8 to 16.
        scale = 1.0 if self.network.dtype == torch.float32 else max(1.0, size / 16)
        if not largest <= scale * _CHECK_TOLERANCE.get(self.network.dtype, 1e-3):
            raise ValueError(
                f"model {self.name}: its logits in a batch differ from those of a row alone by {largest:.2g}; "
                "this architecture is not supported"
            )
        self.row_difference = largest

    def _stepped(self, contexts: list[list[int]], tails: torch.Tensor, again: torch.Tensor) -> torch.Tensor:
        """Logits before each token of the tails, shape (rows, n, V); half-way, rows of `again` are reset."""
        rows, seen = self.packed_rows(contexts), []
        for step, tokens in enumerate(tails.T):
            if 2 * step == tails.shape[1]:
                rows.reset(again)
            seen.append(rows.logits())
            rows.append(tokens)
        return torch.stack(seen, dim=1)


def _load(folder: Path, device: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """Network and tokenizer of a folder."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoTokenizer

    described = model_folder.checked_config(folder)
    kind = described.get("model_type")
    if kind not in CONFIG_MAPPING:
        raise ValueError(f"model_type {str(kind)[:40]!r} is not supported by transformers")
    config = CONFIG_MAPPING[kind].from_dict(described)
    layer_kinds(config)
    # Eager attention is the fastest for one query per row on a CPU, and the only one with soft-capping.
    eager = device == "cpu" or getattr(config, "attn_logit_softcapping", None) is not None
    network, report = AutoModelForCausalLM.from_pretrained(
        folder,
        config=config,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=dtype,
        attn_implementation="eager" if eager else "sdpa",
        output_loading_info=True,
    )
    if report["missing_keys"]:  # they would be initialised at random
        raise ValueError(f"{len(report['missing_keys'])} of its weights are missing from the files")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    return network.to(device).eval(), tokenizer
