"""Source and holdout that are written in two ways are told apart by that, so no bound is drawn from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written_tables import Writing

from dpassay import audit
from dpassay.auditing.alike import unlike, unlike_texts
from dpassay.base.errors import InputError
from dpassay.data.columns import columns_of

Row = dict[str, Any]


def drawn(count: int, seed: int) -> list[Row]:
    rng = np.random.default_rng(seed)
    return [
        {
            "age": f"{rng.uniform(20, 90):.1f}",
            "kind": "abc"[rng.integers(3)],
            "owns": ("yes", "no")[rng.integers(2)],
            "code": f"{rng.integers(10**6):06d}-{rng.integers(10)}",
        }
        for _ in range(count)
    ]


WRITTEN: dict[str, Callable[[Row], Row]] = {
    "comma": lambda row: row | {"age": row["age"].replace(".", ",")},
    "scale": lambda row: row | {"age": str(float(row["age"]) / 100)},
    "words": lambda row: row | {"owns": {"yes": "Y", "no": "N"}[row["owns"]]},
    "truth": lambda row: row | {"owns": {"yes": "1", "no": "0"}[row["owns"]]},
    "missing": lambda row: row | {"kind": "" if row["kind"] == "c" else row["kind"]},
    "shape": lambda row: row | {"code": row["code"].replace("-", "/")},
}


def written(folder: Path, rows: Sequence[Sequence[Row]]) -> list[Path]:
    return [Writing().write(side, folder / name) for side, name in zip(rows, ("made", "seen", "unseen"), strict=True)]


@pytest.mark.parametrize("how", WRITTEN)
def test_no_claim_is_refuted_by_how_the_holdout_is_written(how: str, tmp_path: Path) -> None:
    rows = drawn(200, 1), drawn(200, 2), [WRITTEN[how](row) for row in drawn(200, 3)]  # the first knows of no other
    made, seen, unseen = written(tmp_path, rows)
    with pytest.raises(InputError, match=r"differ in column '.*' more than coins explain") as caught:
        audit.table(made, source=seen, holdout=unseen, coins=True)
    assert "\n" not in str(caught.value)
    result = audit.table(made, source=seen, holdout=unseen)
    assert [column.name for column in result.columns if any("more than chance" in said for said in column.warnings)]


def test_coins_make_no_column_differ() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        rows = drawn(300, int(rng.integers(10**6)))
        heads = rng.random(len(rows)) < 0.5
        sides = [[row for row, head in zip(rows, heads, strict=True) if bool(head) is side] for side in (True, False)]
        assert unlike(list(columns_of(rows).values()), sides[0], sides[1]) == ()


def test_a_user_is_one_however_a_file_writes_the_name(tmp_path: Path) -> None:
    rows = [[row | {"user": str(number)} for number, row in enumerate(drawn(60, seed))] for seed in (1, 2, 3)]
    rows[2] = [row | {"user": f"{100 + int(row['user'])}"} for row in rows[2]]
    rows[1] += [row | {"user": row["user"] + ".0 "} for row in drawn_again(rows[1])]
    made, seen, unseen = written(tmp_path, rows)
    result = audit.table(made, source=seen, holdout=unseen, user="user", coins=True)
    assert (result.units.source_count, result.units.holdout_count) == (60, 60)
    rows[2][0]["user"] = "7.0"
    made, seen, unseen = written(tmp_path, rows)
    with pytest.raises(InputError, match="1 users of column 'user' are in both"):
        audit.table(made, source=seen, holdout=unseen, user="user", coins=True)


def drawn_again(rows: Sequence[Row]) -> list[Row]:
    return [new | {"user": row["user"]} for new, row in zip(drawn(len(rows), 9), rows, strict=True)]


def texts(path: Path, seed: int, change: Callable[[str], str] = str) -> Path:
    rng = np.random.default_rng(seed)
    greeting = "Thank you for your visit – we’ll call you back as soon as we can about the results of the test"
    lines = [f"{greeting} " + " ".join(f"word{number}" for number in rng.integers(0, 5000, 8)) for _ in range(100)]
    path.write_text("".join(json.dumps({"text": change(line)}) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace("’", "'").replace("–", "-"), "how often a text holds '[–’\\-\\']'|holds \"'\""),
        (lambda text: text.replace(" we ", " We "), "how many texts hold each of"),
        (lambda text: text + "  ", None),
    ],
)
def test_texts_that_are_written_in_two_ways(change: Callable[[str], str], says: str | None, tmp_path: Path) -> None:
    """The synthetic texts know of neither side, but share a greeting with both."""
    made, seen = texts(tmp_path / "made.jsonl", 1), texts(tmp_path / "seen.jsonl", 2)
    unseen = texts(tmp_path / "unseen.jsonl", 3, change)
    if says is None:
        assert audit.text(made, source=seen, holdout=unseen, coins=True, epsilon=1.0).refuted is False
        return
    with pytest.raises(InputError, match=says) as caught:
        audit.text(made, source=seen, holdout=unseen, coins=True, epsilon=1.0)
    assert "\n" not in str(caught.value)
    assert audit.text(made, source=seen, holdout=unseen).audits, "without coins there is no bound"


def test_candidates_that_are_written_in_two_ways(tmp_path: Path) -> None:
    """Members and others share a greeting with synthetic texts that know of neither."""
    made, seen = texts(tmp_path / "made.jsonl", 1), texts(tmp_path / "seen.jsonl", 2)
    for change in (str, lambda text: text.replace("’", "'")):
        unseen = texts(tmp_path / "unseen.jsonl", 3, change)
        rows = [
            json.loads(line) | {"included": included}
            for path, included in ((seen, 1), (unseen, 0))
            for line in path.read_text().splitlines()
        ]
        candidates = tmp_path / "candidates.jsonl"
        candidates.write_text("".join(json.dumps(row) + "\n" for row in rows))
        if change is str:
            assert not audit.membership(candidates, synthetic=made, coins=True, epsilon=1.0).refuted
            continue
        with pytest.raises(InputError, match="members and other candidates differ in how many hold each of"):
            audit.membership(candidates, synthetic=made, coins=True, epsilon=1.0)
        assert audit.membership(candidates, synthetic=made).audit.bounds == (), "without coins there is no bound"


def test_coins_make_no_texts_differ() -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        every = [" ".join(f"w{number}" for number in rng.integers(0, 300, 12)) for _ in range(400)]
        coins = rng.random(400) < 0.5
        sides = (
            [[text] for text, coin in zip(every, coins.tolist(), strict=True) if coin is keep] for keep in (True, False)
        )
        assert unlike_texts(*sides) == ()
