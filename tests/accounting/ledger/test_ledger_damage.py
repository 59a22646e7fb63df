"""A damaged ledger is refused, or it gives the account that it gave before: nothing in between."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ledger_forgery import rewrite_chain, stored_rows, tamper

from dpassay.accounting.ledger.entries import LedgerError
from dpassay.accounting.ledger.ledger import Ledger

PAGE = 4096
DAMAGES = 480
Damage = Callable[[Path, random.Random], None]


def contents(path: Path) -> tuple[Any, ...]:
    """Everything that a reader can ask a ledger for."""
    with Ledger.open(path, read_only=True) as ledger:
        runs = [ledger.run(name) for name in ledger.runs()]
        values = [[run.outcome(key) for key in ("counts", *(f"tokens/{step}" for step in range(40)))] for run in runs]
        about = [(run.name, run.about, repr(run.plan), run.finished, repr(run.event())) for run in runs]
        return repr(ledger.event()), ledger.events(), [run.realised() for run in runs], values, about


def flip_bit(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def flip_bit_of_the_log(path: Path, draw: random.Random) -> None:
    flip_bit(Path(f"{path}-wal"), draw)


def cut(path: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    size = draw.randrange(len(content)) if draw.random() < 0.5 else PAGE * draw.randrange(len(content) // PAGE)
    path.write_bytes(content[:size])


def cut_the_log(path: Path, draw: random.Random) -> None:
    log = Path(f"{path}-wal")
    log.write_bytes(log.read_bytes()[: draw.randrange(log.stat().st_size)])


def remove_the_log(path: Path, draw: random.Random) -> None:
    for end in draw.choice([("-wal",), ("-wal", "-shm")]):
        Path(f"{path}{end}").unlink()


def swap_pages(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    first, second = (PAGE * index for index in draw.sample(range(len(content) // PAGE), 2))
    content[first : first + PAGE], content[second : second + PAGE] = (
        content[second : second + PAGE],
        content[first : first + PAGE],
    )
    path.write_bytes(content)


def zero(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    start = draw.randrange(len(content))
    end = min(len(content), start + draw.randrange(1, 200))
    content[start:end] = bytes(end - start)
    path.write_bytes(content)


def append_junk(path: Path, draw: random.Random) -> None:
    with path.open("ab") as file:
        file.write(draw.randbytes(draw.randrange(1, 3 * PAGE)))


def edited(body: str, draw: random.Random) -> str:
    """A body with one number or word replaced."""
    result = draw.choice(list(re.finditer(r"\d+(?:\.\d+)?|[a-z_-]{3,}", body)))
    text = result[0]
    if text in ("null", "true", "false"):
        other = "0"
    else:
        other = str(float(text) / 7) if "." in text else str(int(text) + 1) if text.isdecimal() else text[::-1]
    return body[: result.start()] + other + body[result.end() :]


def edit_text(path: Path, draw: random.Random) -> None:
    row = draw.choice(stored_rows(path))
    tamper(path, ("UPDATE entries SET body = ? WHERE seq = ?", (edited(row[3], draw), row[0])))


def edit_text_and_hashes(path: Path, draw: random.Random) -> None:
    index = draw.randrange(2, len(stored_rows(path)) + 1)
    rewrite_chain(path, lambda seq, run, kind, body: (run, kind, edited(body, draw) if seq == index else body))


def edit_everywhere(path: Path, draw: random.Random) -> None:
    """The same number in plan, charges and costs, with the hashes of all entries made anew."""
    numbers = re.findall(r"\d+\.\d+", stored_rows(path)[1][3])
    old = draw.choice(numbers)
    rewrite_chain(path, lambda seq, run, kind, body: (run, kind, body.replace(old, str(float(old) / 1000))))


def drop_entries(path: Path, draw: random.Random) -> None:
    first = draw.randrange(2, len(stored_rows(path)) + 1)
    rewrite_chain(path, lambda seq, run, kind, body: None if seq == first else (run, kind, body))


def drop_the_end(path: Path, draw: random.Random) -> None:
    tamper(path, ("DELETE FROM entries WHERE seq > ?", (draw.randrange(1, len(stored_rows(path))),)))


EVERYWHERE: list[Damage] = [
    *(flip_bit, flip_bit, flip_bit, cut, swap_pages, zero, append_junk),
    *(edit_text, edit_text_and_hashes, edit_everywhere, drop_entries, drop_the_end),
]
WITH_A_LOG: list[Damage] = [flip_bit, flip_bit_of_the_log, cut_the_log, remove_the_log]


@pytest.fixture(scope="module")
def originals(little: Any, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, tuple[Any, ...]]]:
    """Ledgers of finished runs."""
    folder = tmp_path_factory.mktemp("originals")
    for name, runs in (("one", ["run"]), ("several", [f"run-{index}" for index in range(6)])):
        with Ledger.open(folder / name) as ledger:
            for run in runs:
                little.run(ledger, run)
    return [(folder / name, contents(folder / name)) for name in ("one", "several")]


def copied(original: Path, to: Path) -> Path:
    to.mkdir()
    for end in ("", "-wal", "-shm"):
        if os.path.exists(f"{original}{end}"):
            shutil.copy(f"{original}{end}", to / f"ledger{end}")
    return to / "ledger"


def test_a_damaged_ledger_is_refused_or_unharmed(
    originals: list[tuple[Path, tuple[Any, ...]]], tmp_path: Path, little: Any
) -> None:
    """Every damage is drawn from one seed, so that the test does the same each time."""
    draw, outcomes, wrong = random.Random(20), Counter[str](), []
    with_log = tmp_path / "with-log"
    with Ledger.open(tmp_path / "source") as ledger:
        for name in ("a", "b"):
            little.run(ledger, name)
        with_log.mkdir()
        for end in ("", "-wal", "-shm"):
            shutil.copy(f"{ledger.path}{end}", with_log / f"ledger{end}")
    expected_with_log = contents(tmp_path / "source")
    for number in range(DAMAGES):
        if number % 5 == 4:
            damage, original, expected = draw.choice(WITH_A_LOG), with_log / "ledger", expected_with_log
        else:
            damage = draw.choice(EVERYWHERE)
            original, expected = draw.choice(originals)
        path = copied(original, tmp_path / str(number))
        damage(path, draw)
        try:
            result = contents(path)
        except LedgerError as error:
            outcomes["refused"] += 1
            if len(str(error).splitlines()) > 1:
                wrong.append((damage.__name__, "several lines"))
        except Exception as error:
            wrong.append((damage.__name__, type(error).__name__))
        else:
            outcomes["accepted"] += 1
            if result != expected:
                wrong.append((damage.__name__, "accepted"))
    assert not wrong, f"{len(wrong)} of {DAMAGES} were not refused, with other contents: {Counter(wrong)}"
    # Both occur: a test in which everything is refused, or nothing, would show nothing.
    assert outcomes["refused"] > DAMAGES // 2
    assert outcomes["accepted"] > DAMAGES // 20
