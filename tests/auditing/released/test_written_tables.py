"""However a table is written, an audit gives the numbers of the plain one, or refuses it in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from written_tables import Writing, as_json_lines, near_copies, people, writings

from dpassay import audit
from dpassay.base.errors import InputError

WRITINGS = list(writings())
SEEN, UNSEEN = people(60, 1), people(60, 2)
SYNTHETIC = [*near_copies(SEEN[:30], 3), *people(30, 4)]


def numbers(folder: Path, written: Writing, **options: Any) -> list[Any]:
    files = [
        written.write(rows, folder / name)
        for name, rows in (("synthetic", SYNTHETIC), ("seen", SEEN), ("unseen", UNSEEN))
    ]
    return numbers_of(files, **options)


def numbers_of(files: list[Path], **options: Any) -> list[Any]:
    result = audit.table(files[0], source=files[1], holdout=files[2], coins=True, **options)
    return [(item.name, [(rate.hits, rate.trials) for rate in item.rates]) for item in result.audits]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    result = numbers(tmp_path_factory.mktemp("plain"), Writing())
    (closest,) = (rates for name, rates in result if name == "closest_record")
    assert closest[0][0] > 2 * closest[1][0] + 10, "the audit finds the copies"
    return result


def test_there_are_as_many_ways_as_asked_for() -> None:
    assert len(set(WRITINGS)) >= 300


@pytest.mark.grid(share=40)
@pytest.mark.parametrize("written", WRITINGS, ids=range(len(WRITINGS)))
def test_the_numbers_are_those_of_the_plain_table(written: Writing, plain: list[Any], tmp_path: Path) -> None:
    ignored = {"ignore": ["Unnamed: 0"]} if written.index else {}
    if written.encoding in ("latin-1", "utf-16") and (written.encoding == "latin-1" or written.packed):
        with pytest.raises(InputError, match="is not UTF-8 text") as caught:
            numbers(tmp_path, written, **ignored)
        assert "\n" not in str(caught.value)
    else:
        assert numbers(tmp_path, written, **ignored) == plain


def test_json_lines_are_the_same(plain: list[Any], tmp_path: Path) -> None:
    files = [as_json_lines(rows, tmp_path / f"{n}.jsonl") for n, rows in enumerate((SYNTHETIC, SEEN, UNSEEN))]
    assert numbers_of(files) == plain
