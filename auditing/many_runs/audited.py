"""What was audited: the command as it was given, the files that it names, versions, machine, time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field

from dpassay.auditing.files import Part, versions
from dpassay.base.errors import input_errors

_WAIT = 60.0  # seconds for another Python to say its versions
_VERSIONS = """
import sys
sys.path.pop(0)  # modules of the working folder are not those of the library
import ast, json, platform
from importlib import metadata
names = set()
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        for node in ast.walk(ast.parse(file.read())):
            if isinstance(node, ast.Import):
                names.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
known = metadata.packages_distributions()
found = sorted({name for imported in names for name in known.get(imported, ())})
print(json.dumps({"python": platform.python_version(), **{name: metadata.version(name) for name in found}}))
"""


class NamedFile(Part):
    """A file that a command names.

    Attributes:
        file: as it was typed; of a function, the name of its module's file.
        sha256: hash of its content before the runs.
    """

    file: str
    sha256: str


class AuditedGenerator(Part):
    """How a generator was run by one call of ``dpassay audit runs run`` or ``score``.

    Attributes:
        command: as it was typed; a function as ``module:function``; empty if runs were made elsewhere.
        files: that the command names, or the module of the function.
        takes_seed: whether each run was given a seed of its own.
        versions: of what the audit ran with. A command may run with others.
        generator_versions: of a command that is a Python and scripts: that Python, and the distributions that the
            scripts import; empty if the command is another one.
        machine: of the runs, without its name; empty if they were made elsewhere.
        workers: number of runs at a time.
        timeout: of a run, in seconds.
        started: when the runs began, ISO 8601, UTC.
    """

    command: str
    files: list[NamedFile] = Field(default_factory=list)
    takes_seed: bool = False
    versions: dict[str, str]
    generator_versions: dict[str, str] = Field(default_factory=dict)
    machine: str = ""
    workers: int = 1
    timeout: float = 0.0
    started: str


def of_generator(
    generator: str, words: Sequence[str] | None, module: Path | None, *, workers: int, timeout: float
) -> AuditedGenerator:
    """A generator that is about to be run.

    Args:
        generator: the command as it was typed, or ``module:function``.
        words: of the command; None for a function.
        module: file of the function's module; None for a command.
        workers, timeout: of the runs.

    Raises:
        InputError: if a file that it names cannot be read.
    """
    if words is None:
        files = [] if module is None else [NamedFile(file=module.name, sha256=_digest(module))]
    else:
        named = {word: Path(word.rpartition("=")[2]) for word in words if _names_a_file(word, word == words[0])}
        files = [NamedFile(file=word, sha256=_digest(path)) for word, path in named.items()]
    return AuditedGenerator(
        command=generator,
        files=files,
        takes_seed=words is None or any("{seed}" in word for word in words),
        versions=versions(),
        generator_versions={} if words is None else _versions_of(words),
        machine=_machine(),
        workers=workers,
        timeout=timeout,
        started=now(),
    )


def made_elsewhere() -> AuditedGenerator:
    """A generator whose runs are made elsewhere, now."""
    return AuditedGenerator(command="", versions=versions(), takes_seed=True, started=now())


def now() -> str:
    """The time, ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _names_a_file(word: str, is_program: bool) -> bool:
    """Whether a word of a command names a file here; a program that is searched for on the path does not."""
    return Path(word.rpartition("=")[2]).is_file() and not (is_program and os.sep not in word)


def _versions_of(words: Sequence[str]) -> dict[str, str]:
    """The versions of a Python, if the command is one, and of what its scripts import directly."""
    program = shutil.which(words[0])
    if program is None or not Path(program).name.startswith("python"):
        return {}
    scripts = [word for word in words[1:] if word.endswith(".py") and Path(word).is_file()]
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        asked = subprocess.run(  # the interpreter that the user named; scripts are parsed, not run
            [program, "-c", _VERSIONS, *scripts], capture_output=True, timeout=_WAIT, check=True
        )
        return {str(name): str(version) for name, version in json.loads(asked.stdout).items()}
    return {}


def _digest(path: Path) -> str:
    with input_errors(), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _machine() -> str:
    """The operating system and the processor; the name of the machine is nobody's business."""
    return f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} processors"
