"""Sentence embeddings by any `sentence-transformers` model (``pip install '.[embed]'``)."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpassay.base import defaults, validate
from dpassay.base.extras import install
from dpassay.mechanisms.embedding.embedder import Vectors, unit_rows
from dpassay.mechanisms.models.model_folder import check_embedder
from dpassay.mechanisms.models.quiet_loading import quiet_loading

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]
_PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}


@dataclass(frozen=True, eq=False)
class SentenceEmbedder:
    """A model of `sentence-transformers`; only safetensors are loaded, and no code of the model is run.

    Attributes:
        name: the hub id or the folder's name.
        fingerprint: SHA-256 over the names and contents of its files.
        dimension: d.
        texts_at_once: number of texts in one forward pass. With 1, the default, each vector is a function of its own
            text alone. With more, padding and the shapes of matrix products let other texts change its last bits. Use
            more for public text only.
        one_thread: whether one thread of the processor computes them, since kernels add in another order for another
            number of threads. It does with `texts_at_once` 1.
        network: the model.
        source: what it was loaded from, a folder by its absolute path.
    """

    name: str
    fingerprint: str
    dimension: int
    texts_at_once: int
    network: Any = field(repr=False)
    source: str = ""
    one_thread: bool = False

    @classmethod
    def load(
        cls,
        source: str | Path,
        device: str = "auto",
        *,
        texts_at_once: int = 1,
        one_thread: bool = False,
        allow_network: bool = False,
    ) -> SentenceEmbedder:
        """Loads a model from a local folder or a hub id.

        Args:
            source: a folder or, for example, ``sentence-transformers/all-MiniLM-L6-v2``.
            device: ``auto``, ``cpu`` or ``cuda``.
            texts_at_once, one_thread: see above.
            allow_network: whether a hub id may be downloaded; otherwise it must be in the local cache.

        Raises:
            ValueError: one line, if the package is not installed or there is no such model.
        """
        validate.one_of(defaults.DEVICES, device=device)
        validate.integer(minimum=1, texts_at_once=texts_at_once)
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise ValueError(
                f"sentence-transformers is not installed; an embedding model needs {install('embed')}"
            ) from None
        folder = model_folder(str(source), allow_network)
        try:
            with quiet_loading():
                network = SentenceTransformer(
                    str(folder),
                    device=None if device == "auto" else device,
                    trust_remote_code=False,
                    local_files_only=True,
                    model_kwargs={"use_safetensors": True},
                ).eval()
            dimension = int(network.get_embedding_dimension() or 0)
        except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError) as error:
            first = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            raise ValueError(f"embedder {str(source)!r} cannot be loaded: {first}") from None
        from dpassay.mechanisms.models import row_modules

        ropes = (rope for module in network.modules() for _, rope in row_modules.rope_types(module))
        if any("dynamic" in rope for rope in ropes):
            raise ValueError(
                f"embedder {str(source)!r} has rope type 'dynamic', whose frequencies depend on previously embedded "
                "texts; use another model"
            )
        local = Path(source).is_dir()
        name, place = (folder.resolve().name, str(folder.resolve())) if local else (str(source), str(source))
        return cls(name, _files_digest(folder), dimension, texts_at_once, network, place, one_thread)

    def loader(self) -> Callable[[], SentenceEmbedder]:
        """How another process loads the same model, from its own files, on the same kind of device."""
        device = self.network.device.type
        at_once, one_thread = self.texts_at_once, self.one_thread
        return partial(SentenceEmbedder.load, self.source, device, texts_at_once=at_once, one_thread=one_thread)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Texts beyond the model's length are truncated, each independently of the others."""
        if not len(texts):
            return np.empty((0, self.dimension), dtype=np.float32)
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        with _one_thread() if self.one_thread or self.texts_at_once == 1 else contextlib.nullcontext():
            vectors = self.network.encode(
                clean, batch_size=self.texts_at_once, show_progress_bar=False, convert_to_numpy=True
            )
        return unit_rows(vectors)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Within it, kernels of the processor use one thread."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def model_folder(source: str, allow_network: bool) -> Path:
    """The local folder of a sentence-transformers model, downloaded if that is allowed.

    Raises:
        ValueError: one line, if there is no such model, or it has pickled weights.
    """
    folder = Path(source)
    if not folder.is_dir():
        if folder.exists() or not _HUB_ID.fullmatch(source) or source.startswith((".", "/")):
            raise ValueError(
                f"embedder {source!r} is neither builtin, nor a folder, nor a hub id such as "
                "sentence-transformers/all-MiniLM-L6-v2"
            )
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

        patterns = [*_FILES, *(f"*/{pattern}" for pattern in _FILES)]
        try:
            folder = Path(snapshot_download(source, allow_patterns=patterns, local_files_only=not allow_network))
        except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError):
            hint = "could not be downloaded" if allow_network else "is not in the local cache, and no network is used"
            raise ValueError(f"embedder {source!r} is not a local folder, and as a hub id it {hint}") from None
    if not (folder / "modules.json").is_file():
        raise ValueError(f"embedder {source!r} is not a sentence-transformers model: it has no modules.json")
    try:
        check_embedder(folder)
    except ValueError as error:
        raise ValueError(f"embedder {source!r} cannot be loaded: {error}") from None
    for file in sorted(folder.rglob("*")):
        if file.suffix in _PICKLES and not list(file.parent.glob("*.safetensors")):
            raise ValueError(f"embedder {source!r} has pickled weights ({file.name}); only safetensors are loaded")
    return folder


def _files_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    files = {file for pattern in _FILES for file in folder.rglob(pattern) if file.is_file()}
    for file in sorted(files, key=lambda file: file.relative_to(folder).as_posix()):
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        digest.update(f"{file.relative_to(folder).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()
