"""A group of commands, one of which may be left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

from typer.core import TyperGroup


class DefaultCommandGroup(TyperGroup):
    """A group in which any word that is no command is taken for the path that its `default` command reads.

    ``dpassay compare PATH`` is ``dpassay compare ledger PATH``.
    """

    default: ClassVar[str]
    """The command, which reads something of that name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            if re.fullmatch(r"[a-z-]+", args[0].lower()) and not args[0].startswith("-") and not Path(args[0]).exists():
                ctx.fail(f"{args[0]!r} is neither a {self.default} nor one of {', '.join(self.commands)}.")
            args = [self.default, *args]
        return super().parse_args(ctx, args)
