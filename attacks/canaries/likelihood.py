"""How likely a language model makes the canaries that were planted in the data that it was trained on.

Only the tokens that follow a canary's beginning count, so that a sentence that is likely anyway says nothing. What a
public model says of the same tokens can be subtracted, so that a number or words that are likely anyway say nothing
either.

Source: Carlini, Liu, Erlingsson, Kos and Song, "The Secret Sharer" (2019), for likelihoods of planted canaries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpassay.attacks.canaries.texts import Echo
from dpassay.base.arrays import Floats
from dpassay.mechanisms.models.fine_tuning import log_probabilities
from dpassay.mechanisms.models.language_model import LanguageModel


def ending_log_probabilities(
    model: LanguageModel, canaries: Sequence[Echo], base: LanguageModel | None = None
) -> Floats:
    """The log-probability of what follows the beginning of each canary, its end included, in nats, shape (n,), under
    the model that was trained on the data; that under a public `base` model, if there is one, is subtracted.

    Raises:
        ValueError: if a canary does not fit into the model's context.
    """
    texts, starts = [canary.text for canary in canaries], [canary.start for canary in canaries]
    longest = max((len(model.encode(text)) for text in texts), default=0) + 2
    if longest > model.context_length:
        raise ValueError(
            f"model {model.name}: a canary has {longest} tokens, but its context has {model.context_length}; score a "
            "synthetic file"
        )
    result, _ = log_probabilities(model, texts, starts)
    if base is not None:
        result = result - log_probabilities(base, texts, starts)[0]
    return np.asarray(result, dtype=np.float64)
