"""The wrapper of docs/certificate/check.py, which imports neither dpassay nor a numerical library."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from protocol import Rejected, Tool, main, python

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "certificate" / "check.py"


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECK = _loaded()


def versions() -> str:
    """The program's name and version."""
    import cryptography

    return f"check.py, cryptography {cryptography.__version__}, {python()}"


def verify(folder: Path, key: str, ledger: str) -> str:
    """What `check` says of a release."""
    try:
        return f"{len(CHECK.check(folder, key, ledger)['files'])} files"
    except SystemExit as error:
        raise Rejected(str(error)) from None


TOOL = Tool(versions, verify=verify)

if __name__ == "__main__":
    sys.exit(main(TOOL))
