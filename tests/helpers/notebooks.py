"""Runs a notebook in plain Python, in one namespace, and keeps what its cells print and draw.

``python tests/helpers/notebooks.py`` writes the outputs into the notebooks of `examples/notebooks`.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

NOTEBOOKS = Path(__file__).resolve().parents[2] / "examples" / "notebooks"
VARIES = "varies"
"""The tag of a cell that prints something else in each run."""


def code_cells(book: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in book["cells"] if cell["cell_type"] == "code"]


def executed(book: dict[str, Any]) -> list[tuple[str, list[bytes]]]:
    """What each code cell prints, and its figures as PNG."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    names: dict[str, Any] = {"__name__": "__main__"}
    results = []
    for cell in code_cells(book):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec("".join(cell["source"]), names)  # noqa: S102 (our own examples)
        results.append((out.getvalue(), [_png(pyplot.figure(number)) for number in pyplot.get_fignums()]))
        pyplot.close("all")
    return results


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=72, metadata={"Software": None})
    return buffer.getvalue()


def printed(cell: dict[str, Any]) -> str:
    """What a cell is stored to print."""
    return "".join("".join(item["text"]) for item in cell["outputs"] if item["output_type"] == "stream")


def outputs(text: str, pictures: list[bytes]) -> list[dict[str, Any]]:
    """The outputs of a cell, as they are stored."""
    stream = [{"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}] if text else []
    images = [base64.b64encode(picture).decode() for picture in pictures]
    return [
        *stream,
        *({"data": {"image/png": image}, "metadata": {}, "output_type": "display_data"} for image in images),
    ]


def main(paths: list[Path]) -> None:
    for path in paths:
        book = json.loads(path.read_text(encoding="utf-8"))
        for cell, result in zip(code_cells(book), executed(book), strict=True):
            cell["outputs"] = outputs(*result)
        path.write_text(json.dumps(book, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb")))
