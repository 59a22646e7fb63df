"""Private inference of few tokens whose documents are complete, for tests that release a run and are not about text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dpassay.mechanisms.private_inference.loop import Loop
from dpassay.mechanisms.private_inference.transcripts import Document


@contextmanager
def every_document_ends() -> Iterator[None]:
    """Every document counts as complete and has a text, whatever its tokens are; these are drawn as ever."""
    made = Loop.documents

    def whole(self: Loop, writer: Any) -> Iterator[Document]:
        for document in made(self, writer):
            bare = not document.text.removeprefix(self.mechanism.prefix).strip()
            yield dataclasses.replace(document, complete=True, text=document.text + f"{document.tokens}" * bare)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "documents", whole)
        yield
