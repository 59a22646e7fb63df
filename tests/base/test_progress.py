"""A terminal never shows nothing for long; a program that reads standard error gets no such lines."""

from __future__ import annotations

import io
import sys
import time

import pytest

from dpassay.base import progress
from dpassay.base.progress import Progress, waiting


class Terminal(io.StringIO):
    """What was shown to a person."""

    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch, silent: float = 0.05) -> Terminal:
    """Standard error as a terminal; not in a fixture, after which pytest takes standard error back."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress, "_SILENT", silent)
    return shown


def test_long_work_says_within_a_second_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress._SILENT < 1
    terminal = terminal_of(monkeypatch)
    with waiting("Working …"):
        time.sleep(0.3)
    assert terminal.getvalue() == "Working …\n"


def test_short_work_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch, silent=60.0)
    with waiting("Working …"):
        pass
    assert terminal.getvalue() == ""


def test_what_was_shown_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with waiting("Working …"):
        Progress("bar").note("a note")
        time.sleep(0.3)
    assert terminal.getvalue() == "a note\n"


def test_a_program_reads_no_such_line(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress, "_SILENT", 0.01)
    with waiting("Working …"):
        time.sleep(0.1)
    assert shown.getvalue() == ""


def test_a_bar_is_there_before_the_first_piece_of_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with Progress("bar").stage("Thinking"):
        time.sleep(0.3)
        assert "Thinking" in terminal.getvalue()


def test_a_stage_that_ends_at_once_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch, silent=60.0)
    with pytest.raises(ValueError, match="wrong"), Progress("bar").stage("Thinking"):
        raise ValueError("wrong")
    assert terminal.getvalue() == ""
