"""The entry point of `cupel` and of `python -m cupel`."""

from __future__ import annotations

import sys

from cupel.cli.exit_codes import ExitCode, fault, interrupted, output_closed


def main() -> None:
    """Runs the command line; an interruption is one line and never a traceback, also while modules are imported."""
    sys.exit(_ended(sys.argv[1:]))


def _ended(arguments: list[str]) -> ExitCode | int:
    try:
        from cupel.cli import app

        return app._run(arguments)
    except KeyboardInterrupt:
        return interrupted(arguments)
    except SystemExit as ended:  # rich exits by 1 where a pipe is closed, which here would be REFUTED
        return ExitCode.OUTPUT_CLOSED if ended.code == 1 else int(ended.code or 0)
    except BrokenPipeError:
        return ExitCode.OUTPUT_CLOSED if output_closed() else fault(arguments)
    except Exception:
        return fault(arguments)


if __name__ == "__main__":
    main()
