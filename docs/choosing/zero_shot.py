"""Writes texts with the embedded model, which is shown nothing: what it would write without any private record.

python zero_shot.py COUNT SEED FOLDER [LABEL…]
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.writers import ModelWriter


def main() -> None:
    count, seed, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    labels = sys.argv[4:] or [None]
    # As many texts are asked for at once as a run of evolution would: one that did not end by itself is empty.
    written = (
        text
        for text in ModelWriter(model=LanguageModel.load(device="cpu")).random(None, range(seed, seed + 4 * count))
        if text
    )
    rows = [
        {"label": label, "text": text} for text, label in zip(itertools.islice(written, count), itertools.cycle(labels))
    ]
    (folder / "private").mkdir(parents=True)
    lines = (json.dumps(row) + "\n" for row in rows)
    (folder / "private" / "synthetic.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
