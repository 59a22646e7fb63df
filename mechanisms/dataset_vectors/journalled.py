"""Texts of a public model that are kept in a journal, so that none is written twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cupel.mechanisms.evolution.journal import Entry, Journal
from cupel.mechanisms.evolution.loop import ATTEMPTS, text_seed
from cupel.mechanisms.models.writers import WriterError, clean


def journalled(
    ask: Callable[[Sequence[int]], Iterable[tuple[str, bool]]],
    journal: Journal,
    label: str | None,
    stage: str,
    count: int,
    *,
    seed: int,
    finished: Callable[[int], None],
) -> list[str]:
    """The texts of a stage, from the journal if they are there; those that stay empty are left out.

    Args:
        ask: gives one text for each seed, in order, and whether it ended by itself.
        journal: of the texts.
        label: public.
        stage: of the run; the key of text i is ``stage/i``.
        count: number of texts.
        seed: public.
        finished: called with the number of texts that were finished since the last call.

    Raises:
        WriterError: if all texts are empty.
    """
    pending = [index for index in range(count) if journal.get(label, f"{stage}/{index}") is None]
    finished(count - len(pending))

    def keep(index: int, text: str) -> None:
        journal.add(Entry(label, f"{stage}/{index}", 0, None, index, text))
        finished(1)

    try:
        for attempt in range(ATTEMPTS):
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
                "the model wrote only empty texts; check its prompt, its largest number of tokens, and the coefficient "
                "of its vectors"
            )
        for index in pending:
            keep(index, "")
    finally:
        journal.flush()
    texts = (journal.get(label, f"{stage}/{index}") for index in range(count))
    return [text for text in texts if text]
