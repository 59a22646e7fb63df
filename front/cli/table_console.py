"""Tables on standard output."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from cupel.terminal import escaped


class TableConsole(Console):
    """Prints tables to standard output, without markup; control characters are escaped."""

    def __init__(self) -> None:
        super().__init__(markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """A string as it is printed."""
        return super().render_str(escaped(text), **options)
