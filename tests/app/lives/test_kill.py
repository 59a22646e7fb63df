"""Runs of all generators, killed at any point of their lives: what is visible was committed, and they resume.

`killed_life` has the children that are killed, `visible` says what must hold after every kill.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from killed_life import COMMANDS, Lives, Point
from ledger_reader import entries
from small_claims import GENERATORS, inference, written
from text_server import TextServer, text_server
from visible import Visible

from dpassay.generators.registry import read_claim
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import TOKENS

EVERYWHERE = r"(before|after|half)$"

FEW = (
    r"COMMIT (finish|verdict|release) |rename out |replace run/private/(synthetic.jsonl|report.html) "
    r"|write run/private/assay.json\S* half"
)
"""Where results are committed and become visible."""


def killed_everywhere(
    lives: Lives, seen: Visible, deadly: str, commands: Sequence[str] = tuple(COMMANDS)
) -> list[Point]:
    """Kills one life at every point that a pattern fits, one after the other, and resumes it each time.

    It is resumed with the command that was killed: every assay that ends is one more verdict, of which a run has few.

    Returns:
        Where it was killed.
    """
    points: list[Point] = []
    while (ended := lives.live(seen.folder, deadly=deadly, spared=points, commands=commands)).code:
        assert ended.code == -9, f"refused after {points[-1:]}: {ended.errors}"
        assert ended.last is not None
        points.append(ended.last)
        killed, _, _ = ended.last.call.partition(":")
        commands = commands[commands.index(killed) :]
        seen.check()
    seen.check_end()
    return points


def killed_at_times(lives: Lives, seen: Visible, times: list[float]) -> int:
    """Kills one life after so many seconds, resumes it and kills it again, and lets it come to its end.

    Returns:
        The number of kills that came before it was at its end.
    """
    kills = 0
    for seconds in times:
        ended = lives.live(seen.folder, seconds=seconds)
        assert ended.code in (0, -9), f"refused after {kills} kills: {ended.errors}"
        kills += ended.code == -9
        seen.check()
    ended = lives.live(seen.folder)
    assert ended.code == 0, ended.errors
    seen.check_end()
    return kills


@pytest.fixture(scope="module")
def server() -> Iterator[TextServer]:
    with text_server() as server:
        yield server


@pytest.mark.slow
def test_killed_where_results_appear(server: TextServer, tmp_path: Path) -> None:
    with Lives() as lives:
        assert lives.live(written(tmp_path / "warm", "aug_pe", server.url).folder, warm=True).code == 0
        points = killed_everywhere(lives, written(tmp_path / "life", "aug_pe", server.url), FEW)
    assert {point.side for point in points} == {"before", "after", "half"}
    assert len(points) >= 13


def generator_killed(generator: str, folder: Path, url: str) -> tuple[int, int]:
    """The number of points at which a generator's life was killed, and of kills after random times."""
    with Lives() as lives:
        assert lives.live(written(folder / "warm", generator, url).folder, warm=True).code == 0
        points = killed_everywhere(lives, written(folder / "points", generator, url), EVERYWHERE)
        for verb in ("link", "rename", "replace", "COMMIT"):
            sides = [point for point in points if re.search(f": {verb} ", point.call)]
            assert {side for _, side in sides} == {"before", "after"}, verb
            assert len(sides) % 2 == 0
        whole = lives.live(written(folder / "whole", generator, url).folder)
        assert whole.code == 0, whole.errors
        generator_of_times = random.Random(generator)  # a public choice: when to kill
        times = 0
        for number in range(4):
            after = [whole.seconds * generator_of_times.random() ** 2 for _ in range(5)]
            times += killed_at_times(lives, written(folder / str(number), generator, url), after)
    return len(points), times


@pytest.mark.slow
def test_every_generator_killed_everywhere(server: TextServer, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        counts = pool.map(lambda name: generator_killed(name, tmp_path / name, server.url), GENERATORS)
        results = dict(zip(GENERATORS, counts, strict=True))
    for name, (points, times) in results.items():
        print(f"\n{name}: killed at {points} points, and {times} times after a random time", end="")
    kills = sum(map(sum, results.values()))
    print(f"\n{kills} kills of lives of a run by SIGKILL")
    assert kills >= 200


@pytest.mark.slow
def test_an_audit_that_keeps_canaries_and_a_ledger_killed_where_they_appear(tmp_path: Path) -> None:
    claim = inference(aggregate="mean", slot_threshold=None)
    claim |= {"public": {"records": 12}, "audits": ["reconstruction"]}
    (folder := tmp_path / "life").mkdir()
    (folder / "claim.yaml").write_text(yaml.safe_dump(claim))
    deadly = r"canaries|(link|mkdir) run/private/audits|COMMIT (begin|finish|commit tokens/1) in run/private/audits"
    with Lives() as lives:
        assert lives.live(written(tmp_path / "warm", "mean", "").folder, warm=True).code == 0
        points = killed_everywhere(lives, Visible(folder), deadly, ("assay", "release"))
    print(f"\n{len(points)} kills of assays that keep canaries and a ledger of their own")
    for verb in ("link", "mkdir", "COMMIT"):
        assert any(f": {verb} " in point.call for point in points), verb


def released(mechanism: PrivateInference, tokens: list[list[int]]) -> list[dict[str, Any]]:
    """The rows of the documents, from the tokens in the ledger, shape (steps, slots), alone."""
    rule = mechanism.end_rule(LanguageModel.load(device="cpu"))
    return [
        {"slot": slot, "label": None, "text": mechanism.prefix + rule.text(document)}
        for slot, written in enumerate(zip(*tokens, strict=True))
        for document in rule.split(written)
        if rule.stopped(document)
    ]


def started(folder: Path) -> subprocess.Popen[bytes]:
    """`dpassay generate` as a person starts it."""
    arguments = [sys.executable, "-m", "dpassay", *COMMANDS["generate"]]
    environment = os.environ | {"XDG_STATE_HOME": str(folder / "state")}
    with (folder / f"printed-{len(list(folder.glob('printed-*')))}").open("wb") as out:
        return subprocess.Popen(arguments, cwd=folder, env=environment, stdout=out)


@pytest.mark.slow
def test_the_command_itself_killed_at_three_points(tmp_path: Path) -> None:
    claim = inference(aggregate="median", batch_size=2, tokens=60, slot_threshold=None)
    (tmp_path / "claim.yaml").write_text(yaml.safe_dump(claim))
    seen, kills = Visible(tmp_path), 0
    for delay in (0.0, 0.05, 0.15):
        process, before = started(tmp_path), len(seen.entries)
        while process.poll() is None and len(entries(seen.ledger)) < before + 4:
            time.sleep(0.005)
        time.sleep(delay)
        process.kill()
        kills += process.wait() == -9
        seen.check()
    assert kills == 3
    assert started(tmp_path).wait() == 0
    seen.check()
    assert seen.run is not None
    assert seen.run.whole
    mechanism = read_claim(tmp_path / "claim.yaml").generator()
    assert isinstance(mechanism, PrivateInference)
    tokens = [seen.run.committed[f"{TOKENS}/{step}"]["tokens"] for step in range(mechanism.tokens)]
    assert seen.run.documents() == released(mechanism, tokens) != []
