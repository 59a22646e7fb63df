"""The command, in this process: a new one takes seconds to load the libraries."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import sys
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

_PRELOADED = [
    "cupel.run_private_inference",
    "pyarrow.parquet",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.tokenization_utils_tokenizers",
]


@dataclass
class Result:
    """What a command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object) -> Result:
    """`cupel` with these arguments."""
    from cupel.cli import _run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = _run([str(argument) for argument in arguments])
    return Result(code, out.getvalue(), err.getvalue())


def start(*arguments: object) -> BaseProcess:
    """`cupel` with these arguments in a process of its own, forked from one that has loaded the libraries."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    process = context.Process(target=_exit, args=([str(argument) for argument in arguments],))
    process.start()
    return process


def _exit(arguments: list[str]) -> None:
    from cupel.cli import _run

    sys.exit(_run(arguments))
