"""Texts of a public model that are kept in a journal, so that none is written twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dpassay.mechanisms.evolution.journal import Entry, Journal
from dpassay.mechanisms.evolution.loop import ATTEMPTS, text_seed
from dpassay.mechanisms.models.writers import WriterError, clean


def journalled(
    ask: Callable[[Sequence[int]], Iterable[tuple[str, bool]]],
    journal: Journal,
    label: str | None,
    stage: str,
    count: int,
    *,
    seed: int,
    finished: Callable[[int], None],
    attempts: int = ATTEMPTS,
) -> list[str]:
    """The texts of a stage, from the journal if they are there; those that stay empty are left out.

    Args:
        ask: gives one text for each seed, in order, and whether it ended by itself.
        stage: of the run; the key of text i is ``stage/i``.
        finished: called with the number of texts that were finished since the last call.
        attempts: how often a text is asked for, each time with another seed, as long as it is empty.

    Raises:
        WriterError: if all texts are empty.
    """
    pending = [index for index in range(count) if journal.get(label, f"{stage}/{index}") is None]
    finished(count - len(pending))

    def keep(index: int, text: str) -> None:
        journal.add(Entry(label, f"{stage}/{index}", 0, None, index, text))
        finished(1)

    try:
        for attempt in range(attempts):
            seeds = [text_seed(seed, label, f"{stage}/{index}", attempt) for index in pending]
            again = []
            for index, (text, _) in zip(pending, ask(seeds), strict=True):
                if text := clean(text):
                    keep(index, text)
                else:
                    again.append(index)
            pending = again
        if len(pending) == count:
            raise WriterError(
                f"all {attempts * count} texts are empty or rejected; check the prompt, the largest number of tokens, "
                "the coefficient of the vectors, and the threshold"
            )
        for index in pending:
            keep(index, "")
    finally:
        journal.flush()
    texts = (journal.get(label, f"{stage}/{index}") for index in range(count))
    return [text for text in texts if text]
