"""Runs killed in the middle of their ledgers end with exactly the charges and documents of an undisturbed run.

Noise is 0 and every draw is the first outcome, from a source that says it is recorded, so that documents can be
compared: a source that goes on with its numbers would draw others after a kill.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from killed_life import Lives, Point
from ledger_reader import entries
from property_settings import number
from small_claims import written
from text_server import TextServer, text_server

COMMITS = r"COMMIT (begin|charge|commit|step|finish)\b.* in run/private/ledger.sqlite"


@pytest.fixture(scope="module")
def server() -> Iterator[TextServer]:
    with text_server() as server:
        yield server


def kept(folder: Path) -> tuple[list[dict[str, Any]], bytes]:
    """What was charged, in order, and the documents."""
    private = folder / "run" / "private"
    charged = [entry.body for entry in entries(private / "ledger.sqlite") if entry.kind == "charge"]
    assert charged
    return charged, (private / "synthetic.jsonl").read_bytes()


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    with Lives() as lives:
        yield lives


def killed(lives: Lives, generator: str, folder: Path, url: str, least: int) -> int:
    """Kills lives at their commits, one commit after the other, until there were so many kills.

    Each life must end as if it had not been disturbed.

    Returns:
        The number of kills.
    """
    assert lives.live(written(folder / "warm", generator, url).folder, warm=True, commands=["assay"]).code == 0
    whole = written(folder / "whole", generator, url).folder
    code = lives.live(whole, commands=["assay"], still=True).code
    assert code in (0, 4)
    kills = 0
    while kills < least:
        life = written(folder / str(kills), generator, url).folder
        points: list[Point] = []
        while kills + len(points) < least:
            ended = lives.live(life, deadly=COMMITS, spared=points, commands=["assay"], still=True)
            if ended.code != -9:
                break
            assert ended.last is not None
            points.append(ended.last)
        ended = lives.live(life, commands=["assay"], still=True)
        assert ended.code == code, ended.errors
        assert kept(life) == kept(whole)
        assert points, "there is nothing to die at"
        kills += len(points)
    return kills


@pytest.mark.slow
@pytest.mark.parametrize(
    "generator",
    [
        "dataset_vectors",
        "two_stage",
        "table_evolution",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("secret_evolution", "aug_pe", "median")),
    ],
)
def test_kills_in_the_middle_of_a_ledger(generator: str, lives: Lives, server: TextServer, tmp_path: Path) -> None:
    least = number(2, 20)
    assert killed(lives, generator, tmp_path, server.url, least) >= least
