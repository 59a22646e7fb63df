"""The games are the ones that their statistics are proven for."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import numpy as np
import pytest

from dpassay.accounting.adjacency import Unit
from dpassay.accounting.ledger import run_files
from dpassay.attacks.canaries.reconstruction import Canaries
from dpassay.base import private_files
from dpassay.generators.private_inference.canaries import canary_records, kept_canaries


@pytest.mark.parametrize("labels", [(), ("a",), ("a", "b", "c")])
@pytest.mark.parametrize("unit", ["record", "user"])
def test_a_coin_decides_exactly_one_record(labels: tuple[str, ...], unit: str) -> None:
    canaries = Canaries.draw(20, seed=3)
    before = set(canary_records(canaries, labels, Unit(unit)))
    for index in range(20):
        flipped = canaries.included.copy()
        flipped[index] ^= True
        after = set(canary_records(dataclasses.replace(canaries, included=flipped), labels, Unit(unit)))
        assert len(before ^ after) == 1


def test_canaries_are_kept_and_the_first_writer_wins(tmp_path: Path) -> None:
    path = tmp_path / "canaries.json"
    drawn: list[Canaries] = []
    threads = [threading.Thread(target=lambda: drawn.append(kept_canaries(path, 50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(drawn) == 4
    for other in drawn[1:]:
        assert other.keys == drawn[0].keys
        np.testing.assert_array_equal(other.included, drawn[0].included)
    assert [file.name for file in tmp_path.iterdir()] == ["canaries.json"]


def test_private_is_for_the_owner_even_where_it_was_there_before(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0o755)
    private = run_files.prepare(tmp_path / "private").parent
    private_files.write_atomically(private / "a.json", "{}")
    assert private.stat().st_mode & 0o777 == 0o700
    assert (private / "a.json").stat().st_mode & 0o777 == 0o600
