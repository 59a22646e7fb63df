"""The entry point of `dpassay` and of `python -m dpassay`."""

from __future__ import annotations

import os
import sys

from dpassay.cli.exit_codes import ExitCode, fault, interrupted, output_closed


def main() -> None:
    """Runs the command line; an interruption is one line and never a traceback, also while modules are imported.

    The interpreter exits by 1 if it cannot print why it ends, which here would be REFUTED.
    """
    try:
        _open_closed_streams()
        code = _ended(sys.argv[1:])
    except BaseException:  # of a memory that is full, for instance, where even the report of a fault fails
        code = ExitCode.FAULT
    sys.exit(code if _flushed() else ExitCode.BAD_INPUT)


def _open_closed_streams() -> None:
    """Opens standard streams that are closed, so that no other file takes their place and is printed to."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor, which this one is
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - open to the end
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _flushed() -> bool:
    """Whether standard output has taken all that was printed; what a stream cannot take is dropped."""
    flushed = True
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            flushed = flushed and stream is not sys.stdout
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return flushed


def _ended(arguments: list[str]) -> ExitCode | int:
    try:
        from dpassay.cli import app

        return app.run_command(arguments)
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
