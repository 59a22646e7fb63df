"""Which embedder a name stands for: one that comes with dpassay, or a model. A new embedder is a row of `EMBEDDERS`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from dpassay.mechanisms.embedding.embedder import Embedder, HashedNgrams
from dpassay.mechanisms.embedding.sentence import SentenceEmbedder, model_folder

BUILTIN = "builtin"

EMBEDDERS: dict[str, Callable[[], Embedder]] = {BUILTIN: HashedNgrams}
"""Embedders that come with dpassay, by name. Any other name is the folder or the hub id of a model."""


def load_embedder(
    source: str = BUILTIN,
    *,
    device: str = "auto",
    texts_at_once: int = 1,
    one_thread: bool = False,
    download: bool = False,
) -> Embedder:
    """The embedder of a name; the one that was last loaded is kept.

    Args:
        source: a name in `EMBEDDERS`, or the folder or hub id of a sentence-transformers model.
        device: of a model: ``auto``, ``cpu`` or ``cuda``.
        texts_at_once: how many texts a forward of a model takes. More than 1 is for public text and for what is never
            released, since other texts then move a vector's last bits.
        one_thread: whether vectors must not depend on the number of threads, whatever `texts_at_once`.
        download: whether a model that is not on this machine may be fetched.

    Raises:
        ValueError: where there is no such embedder.
    """
    return _loaded(source, device, texts_at_once, one_thread, download)


def fitted_embedder(source: str, public_texts: Sequence[str], seed: int) -> Embedder:
    """The embedder of a name, as for `load_embedder`; the builtin one is fitted on public texts, never private ones.

    Raises:
        ValueError: where there is no such embedder.
    """
    return HashedNgrams.fitted(public_texts, seed=seed) if source == BUILTIN else load_embedder(source)


def fetch_embedder(source: str) -> None:
    """Downloads the model of a name, where it is the hub id of one that is not on this machine.

    Raises:
        ValueError: where it cannot be.
    """
    if source not in EMBEDDERS:
        model_folder(source, allow_network=True)


@functools.lru_cache(maxsize=1)
def _loaded(source: str, device: str, texts_at_once: int, one_thread: bool, download: bool) -> Embedder:
    if source in EMBEDDERS:
        return EMBEDDERS[source]()
    return SentenceEmbedder.load(
        source, device, texts_at_once=texts_at_once, one_thread=one_thread, allow_network=download
    )
