"""A generator of dpassay by a claim file: `python dpassay_claim.py DATA OUT --claim people-evolution.yaml`.

It claims what the file says; the file's own data are replaced by DATA, and what it calls public stays as it is.
`--set NAME=NUMBER` changes a parameter, such as `noise_multiplier=0.001` for a control without protection.

Install: dpassay (Apache-2.0).
"""

import argparse
import csv
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data")
    options.add_argument("out")
    options.add_argument("--claim", type=Path, required=True, help="claim file about a table")
    options.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER", help="a parameter; repeatable")
    return options


def main(words: Sequence[str] | None = None) -> None:
    """Runs the generator and writes its rows."""
    given = parser().parse_args(words)

    import yaml

    import dpassay

    content = yaml.safe_load(given.claim.read_text(encoding="utf-8"))
    content["data"] = {"source": "table", "path": str(Path(given.data).resolve())}
    content["public"]["columns"] = str(given.claim.resolve().parent / content["public"]["columns"])
    for name, _, number in (item.partition("=") for item in given.set):
        content["parameters"][name] = float(number)
    if given.set:
        del content["guarantee"]  # which other parameters do not meet
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        dpassay.generate(dpassay.make_claim(content), run)
        lines = (run / "private" / "synthetic.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    with open(given.out, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
