"""A generator that remembers its data: `python memorises.py DATA OUT` (.jsonl with a column text, or .csv).

Texts are written word by word, each drawn from what followed the two words before it; rows are drawn from the data,
with every number moved a little. Both look harmless in samples.
"""

import csv
import json
import random
import sys
from collections import defaultdict
from pathlib import Path

COUNT = 1500


def texts(data: list[str], draw: random.Random) -> list[str]:
    follows = defaultdict(list)
    for text in data:
        words = ["", "", *text.split(), ""]
        for one, two, three in zip(words, words[1:], words[2:], strict=False):
            follows[one, two].append(three)
    out = []
    for _ in range(COUNT):
        words = ["", ""]
        while len(words) == 2 or words[-1]:
            words.append(draw.choice(follows[words[-2], words[-1]]))
        out.append(" ".join(words[2:-1]))
    return out


def moved(value: str, draw: random.Random) -> str:
    try:
        number = float(value)
    except ValueError:
        return value
    return f"{number + draw.gauss(0, 0.01 * abs(number)):.2f}"


def main() -> None:
    source, target, draw = Path(sys.argv[1]), Path(sys.argv[2]), random.Random(1)
    if source.suffix == ".jsonl":
        with source.open(encoding="utf-8") as file:
            written = texts([json.loads(line)["text"] for line in file], draw)
        target.write_text("".join(json.dumps({"text": text}) + "\n" for text in written), encoding="utf-8")
        return
    with source.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        for _ in range(COUNT):
            writer.writerow({name: moved(value, draw) for name, value in draw.choice(rows).items()})


if __name__ == "__main__":
    main()
