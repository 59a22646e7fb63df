"""Reads a model's folder as untrusted files: no code in it is run, and unexpected values are rejected first.

`transformers` trusts a folder's configuration, which may name an attention kernel to download and run, request more
layers than fit into memory, or enable outputs that change a forward pass. Here it is read as plain JSON, and only the
keys that describe the shape of the network are passed on.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any, TypeVar

BUILTIN = "builtin"
PATTERNS = ("*.json", "*.safetensors", "tokenizer*", "*.model", "*.txt", "*.jinja")
"""The files of a model that are read: weights, configuration and tokenizer."""

Json = TypeVar("Json", dict[str, Any], list[Any])

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_LONGEST_CONFIG = 2**20  # bytes
_NOT_OF_THE_SHAPE = re.compile(
    r"_.*|attn_implementation|experts_implementation|auto_map|custom_.*|use_kernels?|output_.*|return_dict|torchscript"
    r"|use_return_dict|chunk_size_feed_forward|pruned_heads|gradient_checkpointing"
)
"""Keys that state how to compute rather than what; this package sets these itself."""

_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_EMBEDDINGS = (("vocab_size",), ("hidden_size", "n_embd", "d_model"))


def locate(source: str, allow_network: bool) -> Path:
    """The local folder of ``builtin``, a local folder, or a hub id, which must be in the local cache unless it may be
    downloaded.

    Raises:
        ValueError: one line, if there is none.
    """
    if source == BUILTIN:
        from dpassay.mechanisms.models import embedded

        return embedded.path()
    if Path(source).is_dir():
        return Path(source)
    if Path(source).exists() or not _HUB_ID.fullmatch(source) or source.startswith((".", "/")):
        raise ValueError(f"model {source!r} is neither builtin, nor a folder, nor a hub id such as google/gemma-2-2b")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(source, allow_patterns=list(PATTERNS), local_files_only=not allow_network))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError):
        hint = "could not be downloaded" if allow_network else "is not in the local cache; --download fetches it"
        raise ValueError(f"model {source!r} is not a local folder, and as a hub id it {hint}") from None


def files(folder: Path) -> list[Path]:
    """The files of a model's folder that are read, sorted by name."""
    return sorted({file for pattern in PATTERNS for file in folder.glob(pattern) if file.is_file()})


def fingerprint(folder: Path) -> str:
    """SHA-256 over name and content of every file of weights, configuration and tokenizer in a folder."""
    digest = hashlib.sha256()
    for file in files(folder):
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        digest.update(f"{file.name}\0{content}\n".encode())
    return digest.hexdigest()


def checked_config(folder: Path) -> dict[str, Any]:
    """The configuration of a causal language model, reduced to the keys that describe its shape.

    Raises:
        ValueError: if the folder is not a model, or its configuration and weights do not fit together.
    """
    check_files(folder)
    if not (folder / "config.json").is_file() or not list(folder.glob("*.safetensors")):
        raise ValueError("is not a model folder: it needs config.json, *.safetensors and a tokenizer")
    if (folder / "adapter_config.json").exists():
        raise ValueError("is an adapter (adapter_config.json); merge it into its model and save that")
    config = read_json(folder / "config.json")
    if config.get("quantization_config") is not None:
        raise ValueError("is quantised (quantization_config); use weights in float32 or bfloat16")
    byte_pairs = read_json(folder / "tokenizer.json").get("model")
    drops = isinstance(byte_pairs, dict) and byte_pairs.get("dropout")
    if drops or read_json(folder / "tokenizer_config.json").get("sp_model_kwargs"):
        raise ValueError("has a tokenizer with randomness (dropout or sampling); turn that off")
    kept: dict[str, Any] = _shape_only(config)
    _check_size(folder, kept)
    return kept


def check_files(folder: Path) -> None:
    """Checks that everything that is read is a regular file, since reading a pipe or a device would block.

    Raises:
        ValueError: if it is not.
    """
    for path in sorted({path for pattern in PATTERNS for path in folder.glob(pattern)}):
        if not path.is_file() and not path.is_dir():
            raise ValueError(f"{path.name} is not a regular file, or is a broken link")


def read_json(path: Path, kind: type[Json] = dict) -> Json:  # type: ignore[assignment]
    """The JSON object, or list, in a file; an empty one if there is no such file.

    Raises:
        ValueError: one line, if the content is invalid.
    """
    if not path.is_file():
        return kind()
    if path.name.endswith("config.json") and path.stat().st_size > _LONGEST_CONFIG:
        raise ValueError(f"{path.name} is longer than {_LONGEST_CONFIG} bytes")
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"{path.name} is not valid JSON") from None
    if not isinstance(read, kind):
        raise ValueError(f"{path.name} is not a JSON {'list' if kind is list else 'object'}")
    return read


def check_embedder(folder: Path) -> None:
    """Checks that a `sentence-transformers` folder names only modules of that library, and no code to download.

    Raises:
        ValueError: one line, which names the file.
    """
    modules = read_json(folder / "modules.json", list)
    for module in modules:
        known = isinstance(module, dict) and str(module.get("type")).startswith("sentence_transformers.")
        if not known:
            kind = module.get("type") if isinstance(module, dict) else module
            raise ValueError(f"modules.json names {str(kind)[:80]!r}, which is not a module of sentence-transformers")
    for path in sorted(folder.rglob("*")):
        if path.name == "adapter_config.json":
            raise ValueError(f"{path.relative_to(folder)} is an adapter's; merge it into its model and save that")
        if path.name.endswith("config.json"):
            _check_names_no_code(read_json(path), str(path.relative_to(folder)))
    for inner in {path.parent for path in folder.rglob("*")}:
        check_files(inner)


def _check_names_no_code(value: Any, where: str) -> None:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        allowed = True
        if str(key).endswith("attn_implementation"):
            allowed = inner in (None, "eager", "sdpa")
        elif key == "trust_remote_code":
            allowed = inner is False
        elif key == "activation_function":
            allowed = str(inner).startswith("torch.nn.")
        if not allowed:
            raise ValueError(f"{where}: {key} is {str(inner)[:80]!r}, which may run code; remove it")
        _check_names_no_code(inner, where)


def _shape_only(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape_only(inner) for key, inner in value.items() if not _NOT_OF_THE_SHAPE.fullmatch(key)}
    return [_shape_only(inner) for inner in value] if isinstance(value, list) else value


def _check_size(folder: Path, config: dict[str, Any]) -> None:
    """Checks that the weights have the size that the configuration states, before anything larger is allocated."""
    from safetensors import SafetensorError, safe_open

    tensors, elements = 0, 0
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "pt") as opened:
                for name in opened.keys():  # noqa: SIM118 - no mapping
                    shape = opened.get_slice(name).get_shape()
                    tensors, elements = tensors + 1, elements + math.prod(shape)
        except SafetensorError:
            raise ValueError(f"{path.name} is not in the format safetensors") from None
    layers = _number(config, _LAYERS)
    if layers is not None and not 1 <= layers <= tensors:
        raise ValueError(f"config.json states {layers} layers, but the weights are {tensors} tensors")
    sizes = [_number(config, names) for names in _EMBEDDINGS]
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes) and not 1 <= math.prod(known) <= elements:
        raise ValueError(
            f"config.json states {sizes[0]} tokens of {sizes[1]} numbers each, but the weights are {elements} numbers"
        )


def _number(config: dict[str, Any], names: tuple[str, ...]) -> int | None:
    """An integer of the configuration, or of its text model's part."""
    inner = config.get("text_config")
    for part in (config, inner if isinstance(inner, dict) else {}):
        for name in names:
            value = part.get(name)
            if value is not None:
                if type(value) is not int:
                    raise ValueError(f"config.json: {name} must be a whole number")
                return value
    return None
