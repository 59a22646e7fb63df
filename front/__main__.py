"""The entry point of `cupel` and of `python -m cupel`."""

from __future__ import annotations

import sys

from cupel.cli.exit_codes import ExitCode, fault, interrupted


def main() -> None:
    """Runs the command line; an interruption is one line and never a traceback, also while modules are imported."""
    sys.exit(_ended(sys.argv[1:]))


def _ended(arguments: list[str]) -> ExitCode | int:
    try:
        from cupel.cli import app

        return app._run(arguments)
    except KeyboardInterrupt:
        return interrupted(arguments)
    except Exception:
        return fault(arguments)


if __name__ == "__main__":
    main()
