"""Finding secrets: each source against a slow and plain search, what is merged, what is refused, and memory."""

from __future__ import annotations

import gc
import itertools
import json
import re
import subprocess
import sys
import tracemalloc
import unicodedata
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting.guarantees import SecretProtection
from dpassay.data import corpora
from dpassay.data.records import builtin_records
from dpassay.mechanisms.secret_evolution import pattern_process
from dpassay.mechanisms.secret_evolution.detection import (
    ListedSecrets,
    PatternSecrets,
    QuantileWords,
    find_secrets,
    secret_source,
)
from dpassay.mechanisms.secret_evolution.incidence import DetectedSecrets, Incidence
from dpassay.mechanisms.secret_evolution.inclusion import SecretNoise
from dpassay.mechanisms.secret_evolution.listed import PhraseFinder, canonical, composed, read_list

DEFAULT = SecretProtection(1e-4, 1e-3)


def places(incidence: Incidence) -> list[list[int]]:
    """The records of every secret."""
    return [row.nonzero()[0].tolist() for row in incidence.matrix.toarray()]


def found(texts: Collection[str], *mappings: object, folder: Path | str = ".") -> Incidence:
    return find_secrets(texts, [secret_source(mapping, folder) for mapping in mappings], DEFAULT)


# Lists


def written(path: Path, *secrets: str) -> ListedSecrets:
    path.write_text("".join(secret + "\n" for secret in secrets), encoding="utf-8")
    return ListedSecrets(path)


@pytest.mark.parametrize(
    ("secret", "text", "there"),
    [
        ("Ann", "Ann", True),
        ("Ann", "Ann's, (Ann)", True),
        ("Ann", "Anna, McAnn, Ann_", False),
        ("Ann", "ann ANN", False),
        ("Ann Lee", "by Ann\n  Lee.", True),
        ("Ann Lee", "Ann, Lee; Ann Leeds", False),
        ("a.b", "a.b", True),
        ("a.b", "axb", False),
        ("+49 151", "call+49 151!", True),
        ("+49 151", "+49 1515", False),
        ("12", "€12", True),
        ("12", "312 1.2", False),
        ("???", "what???!", True),
        ("C++", "C++20", True),
        ("Zoe\u0308", "Zo\u00eb was here", True),
        ("Zo\u00eb", "Zoe\u0308", True),
        ("Zo", "Zoë", False),
    ],
)
def test_a_listed_secret_is_found_on_word_boundaries(tmp_path: Path, secret: str, text: str, there: bool) -> None:
    incidence = find_secrets([text], [written(tmp_path / "s.txt", secret)], DEFAULT)
    assert incidence.matrix.toarray().tolist() == [[there]]


def occurs(secret: str, text: str) -> bool:
    """The definition, character by character."""

    def in_word(char: str) -> bool:
        return char.isalnum() or char == "_"

    def end_of(start: int) -> int | None:
        at = start
        for char in secret:
            if char == " ":
                first = at
                while at < len(text) and text[at].isspace():
                    at += 1
                if at == first:
                    return None
            elif at < len(text) and text[at] == char:
                at += 1
            else:
                return None
        return at

    text = unicodedata.normalize("NFC", text)
    for start in range(len(text)):
        end = end_of(start)
        if end is None:
            continue
        cut_before = start > 0 and in_word(text[start - 1]) and in_word(secret[0])
        cut_after = end < len(text) and in_word(text[end]) and in_word(secret[-1])
        if not (cut_before or cut_after):
            return True
    return False


_TEXT = st.text("ab .-+_é\u0301\n1", max_size=30)


@given(secrets=st.lists(st.text("ab .-é\u03011", min_size=1, max_size=6), max_size=8), text=_TEXT)
@examples(134, 400)
def test_many_secrets_at_once_are_what_one_by_one_finds(secrets: list[str], text: str) -> None:
    """Overlapping, nested, punctuated and decomposed; the alphabet is small so that secrets do occur."""
    forms = {form for secret in secrets if (form := canonical(secret))}
    assert PhraseFinder(forms)(composed(text)) == {form for form in forms if occurs(form, text)}


def test_secrets_that_contain_one_another_both_count(tmp_path: Path) -> None:
    texts = ["Ann Lee Smith", "Ann", "Lee Smith", "nobody"]
    source = written(tmp_path / "s.txt", "Ann", "Ann Lee", "Lee Smith", "Ann Lee Smith", "Unheard")
    incidence = find_secrets(texts, [source], DEFAULT)
    assert places(incidence) == [[], [0], [0], [0, 1], [0, 2]]
    assert incidence.detected == (DetectedSecrets("list", secrets=5, records=3, occurrences=6, nowhere=1),)
    assert incidence.private.tolist() == [True, True, True, False]


def test_tables_give_budgets_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text('secret,p,r\n"Lee, Ann",0.01,0.1\nBob,,0.002\nCid,,\nBob,,0.002\n')
    rows = [{"secret": "Lee, Ann", "p": 0.01, "r": 0.1}, {"secret": "Bob", "r": 0.002}, {"secret": "Cid", "p": None}]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("s.csv", "s.jsonl"):
        incidence = found(["Lee, Ann", "Bob", "Cid"], {"list": name, "r": 5e-3}, folder=tmp_path)
        assert [incidence.budgets[group] for group in incidence.group] == [
            SecretProtection(0.01, 0.1),
            SecretProtection(1e-4, 2e-3),
            SecretProtection(1e-4, 5e-3),
        ]
        assert places(incidence) == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.txt", "", "lists no secret"),
        ("s.txt", "hunter2\n\nhunter3\n", "line 2: holds no secret"),
        ("s.txt", "hunter2\n \t\n", "line 2: holds no secret"),
        ("s.csv", "secret,p,r\nhunter2,0.1,0.2\nhunter2,0.1,0.3\n", "line 3: this secret is listed before"),
        ("s.csv", "secret,p,r\nhunter2,hunter3,0.2\n", "line 2: p must be a number"),
        ("s.csv", "secret,p,r\nhunter2,0.1,1.5\n", "line 2: r must be a number"),
        ("s.csv", "secret,p,r\nhunter2,0.1,nan\n", "line 2: r must be a number"),
        ("s.csv", "secret,p,r\nhunter2,0.2,0.2\n", "r must be above p"),
        ("s.csv", "secret,p,r\nhunter2,0,0.2\n", "strictly between 0 and 1"),
        ("s.csv", "hunter2,p,r\nhunter3,,\n", "line 2: the columns of a list must be secret"),
        ("s.csv", "secret,q\nhunter2,1\n", "line 2: the columns of a list must be secret"),
        ("s.csv", "secret\nhunter2,x\n", "a different number of cells"),
        ("s.csv", "secret\n", "lists no secret"),
        ("s.jsonl", '{"secret": 20202}\n', "line 1: the secret must be text"),
        ("s.jsonl", '{"secret": "hunter2", "hunter3": 1}\n', "line 1: the columns of a list must be secret"),
        ("s.jsonl", "hunter2\n", "line 1: is not JSON"),
    ],
)
def test_bad_lists_are_one_line_without_a_secret(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        found(["hunter2"], {"list": name}, folder=tmp_path)
    assert "\n" not in str(error.value)
    assert not re.search("hunter|20202", str(error.value).replace(str(tmp_path), ""))


def test_files_that_are_no_lists(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such file"):
        read_list(tmp_path / "none.txt")
    (tmp_path / "s.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not UTF-8"):
        read_list(tmp_path / "s.txt")
    (tmp_path / "bom.txt").write_bytes("\ufeffAnn\r\n Bob \r\n".encode())
    assert [entry.secret for entry in read_list(tmp_path / "bom.txt")] == ["Ann", "Bob"]


# Patterns


def test_each_match_or_the_whole_pattern_is_a_secret() -> None:
    texts = ["11111 and 22222", "none", "22222 22222", "x33333"]
    pattern = r"\b\d{5}\b"
    by_match = found(texts, {"pattern": pattern})
    assert places(by_match) == [[0], [0, 2]]
    assert by_match.detected == (DetectedSecrets("pattern", secrets=2, records=2, occurrences=3, nowhere=0),)
    whole = found(texts, {"pattern": pattern, "each": "pattern"})
    assert places(whole) == [[0, 2]]
    assert whole.detected == (DetectedSecrets("pattern", secrets=1, records=2, occurrences=2, nowhere=0),)


def test_sources_that_find_nothing_and_secrets_that_are_everywhere_are_reported() -> None:
    texts = ["a 1", "a 2", "a 3"]
    nothing = found(texts, {"pattern": "z"}, {"pattern": "y", "each": "pattern"})
    assert nothing.detected == (DetectedSecrets("pattern", 0, 0, 0, 0), DetectedSecrets("pattern", 1, 0, 0, 1))
    assert not nothing.private.any()
    everywhere = found(texts, {"pattern": "a"})
    assert everywhere.occurrences.tolist() == [3]
    assert everywhere.private.all()
    assert found([], {"pattern": "a"}).records == 0


def test_places_alone_decide_the_incidence() -> None:
    """Other values in the same places give the same rows and the same fingerprint: neither tells of the values."""
    texts = [record.text for record in builtin_records("notes-with-secrets", 500, 3)]
    keys = sorted({key for text in texts for key in re.findall(corpora.PLANTED_SECRET, text)})
    rng = np.random.default_rng(0)
    others = dict(zip(keys, (f"{key:05d}" for key in rng.choice(100_000, len(keys), replace=False)), strict=True))
    changed = [re.sub(corpora.PLANTED_SECRET, lambda match: others[match[0]], text) for text in texts]
    assert changed != texts
    first, second = (found(some, {"pattern": corpora.PLANTED_SECRET}) for some in (texts, changed))
    assert places(first) == places(second)
    assert first.fingerprint == second.fingerprint


def test_a_sorted_list_tells_nothing_of_values(tmp_path: Path) -> None:
    """Six secrets in overlapping places, listed by the alphabet, for many values: what is public is the same.

    With rows in the order of the list, the linear program has other solutions for other orders: the fingerprint and
    the records that are drawn would tell how the values are sorted.
    """
    where = np.random.default_rng(4).random((6, 10)) < 0.35
    seen = set()
    for seed in range(6):
        values = [f"k{number}" for number in np.random.default_rng(seed).choice(1000, 6, replace=False)]
        texts = [" ".join(value for value, there in zip(values, column, strict=True) if there) for column in where.T]
        incidence = find_secrets(texts, [written(tmp_path / "s.txt", *sorted(values))], SecretProtection(1e-3, 1e-2))
        noise = SecretNoise.fit(incidence, rounds=1)
        seen.add((incidence.fingerprint, incidence.budgets, noise.sigma, tuple(noise.probabilities), noise.releases))
    assert len(seen) == 1


# Words of some frequency


def test_words_near_a_quantile() -> None:
    # By frequency: e 5, d 4, then b and c 3 as they occur, a 1.
    texts = ["e e e e e, d d d", "d b-b b c c c", "a"]
    for quantile, count, rows in [
        (0.01, 1, [[0]]),
        (0.5, 1, [[1]]),
        (0.5, 3, [[0, 1], [1], [1]]),
        (0.99, 2, [[1], [2]]),
        (0.3, 5, [[0], [0, 1], [1], [1], [2]]),
    ]:
        assert places(found(texts, {"quantile": quantile, "count": count})) == rows, (quantile, count)


def test_other_words_in_the_same_places_are_chosen_alike() -> None:
    """Four words that occur twice, two of which are secrets, and others in their places by another alphabet."""
    seen = {
        find_secrets(
            [f"x x x {a} {b}", f"{c} {a} {d}", f"{d} {c} {b}"], [QuantileWords(0.4, 2)], DEFAULT
        ).fingerprint
        for a, b, c, d in itertools.permutations("abcd")
    }  # fmt: skip
    assert len(seen) == 1


def test_words_are_compared_as_listed_secrets_are() -> None:
    incidence = found(["Zoë Zoe\u0308 zoë", "zo"], {"quantile": 0.01, "count": 1})
    assert places(incidence) == [[0]]
    assert incidence.detected[0].kind == "quantile"


# Several sources


def test_one_secret_of_two_sources_has_one_row_and_the_stricter_budget(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("04821\nAnn\n")
    texts = ["04821", "x04821", "Ann 55555"]
    by_list, by_pattern = {"list": "s.txt", "r": 0.01}, {"pattern": r"\d{5}", "r": 0.002}
    for sources, rows in [
        ((by_list, by_pattern), [[0, 1], [2], [2]]),
        ((by_pattern, by_list), [[0, 1], [2], [2]]),
    ]:
        incidence = found(texts, *sources, folder=tmp_path)
        assert places(incidence) == rows
        assert [incidence.budgets[group].r for group in incidence.group] == [0.002, 0.002, 0.01]
        by_kind = {item.kind: item for item in incidence.detected}
        assert by_kind["list"] == DetectedSecrets("list", secrets=2, records=2, occurrences=2, nowhere=0)
        assert by_kind["pattern"] == DetectedSecrets("pattern", secrets=2, records=3, occurrences=3, nowhere=0)


def test_one_secret_with_two_ps_is_refused_without_naming_it(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("04821\n")
    with pytest.raises(ValueError, match="a secret has p") as error:
        found(["04821"], {"list": "s.txt"}, {"pattern": r"\d{5}", "p": 5e-4}, folder=tmp_path)
    assert "04821" not in str(error.value)
    assert "\n" not in str(error.value)


# Mappings


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ("secrets.txt", "must be a mapping"),
        ({}, "exactly one of list, pattern, quantile, presidio, not 0"),
        ({"list": "a", "pattern": "hunter2"}, "not 2 of them"),
        ({"pattern": "hunter2", "hunter3": 1}, "may have, besides pattern, only each, p, r"),
        ({"list": "a", "each": "match"}, "may have, besides list, only p, r"),
        ({"list": 5}, "list must be the path"),
        ({"pattern": 20202}, "pattern must be a string"),
        ({"pattern": "(hunter2"}, r"not a regular expression of Python's re \(column 1\)"),
        ({"pattern": "(?P<hunter2>a)(?P<hunter2>b)"}, "not a regular expression"),
        ({"pattern": "(hunter2)?"}, "matches the empty string"),
        ({"pattern": r"\b"}, "matches the empty string"),
        ({"pattern": "(?=hunter2)", "each": "pattern"}, "matches the empty string"),
        ({"pattern": "hunter2", "each": "word"}, "each must be one of match, pattern"),
        ({"pattern": "hunter2", "p": 0.1, "r": 0.1}, "r must be above p"),
        ({"pattern": "hunter2", "p": 0.1}, r"r must be above p, .* \(p=0.1, r=0.001\)"),
        ({"pattern": "hunter2", "p": 0}, "p must be strictly between"),
        ({"pattern": "hunter2", "r": 2}, "r must be between"),
        ({"pattern": "hunter2", "r": "0.1"}, "r must be a number"),
        ({"quantile": 0.2}, "needs count"),
        ({"quantile": 0, "count": 1}, "quantile must be strictly between"),
        ({"quantile": 1, "count": 1}, "quantile must be strictly between"),
        ({"quantile": 0.2, "count": 0}, "count must be at least 1"),
        ({"quantile": 0.2, "count": 1.5}, "count must be a whole number"),
        ({"quantile": 0.2, "count": 3}, "count is 3, but the records have only 2 distinct words"),
        ({"presidio": []}, "must be a list of entities"),
        ({"presidio": "PERSON"}, "must be a list of entities"),
        ({"presidio": ["PERSON", "PERSON"]}, "must name each entity once"),
        ({"presidio": ["PERSON"], "model": 5}, "model must be the name"),
        ({"presidio": ["PERSON"], "each": "pattern"}, "each must be one of match, entity"),
    ],
)
def test_bad_sources_are_one_line_without_a_secret(mapping: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        found(["hunter2 hunter3"], mapping)
    assert "\n" not in str(error.value)
    assert not re.search("hunter|20202", str(error.value))


@pytest.mark.grid
@pytest.mark.parametrize("each", ["match", "pattern"])
@pytest.mark.parametrize(
    ("pattern", "text"), [("(a+)+b", "a" * 60), (r"(\w+\s?)+$", "a" * 60 + "!"), (r"(a*)*\1b", "a" * 60)]
)
def test_a_pattern_that_takes_exponential_time_is_refused(
    monkeypatch: pytest.MonkeyPatch, pattern: str, text: str, each: str
) -> None:
    """At some 10⁸ steps a second, 2⁶⁰ steps would take three centuries."""
    monkeypatch.setattr(pattern_process, "SECONDS", 0.2)
    with pytest.raises(ValueError, match=r"pattern takes over 0\.2 seconds on one text; write it such that") as error:
        found(["aab aab", text], {"pattern": pattern, "each": each})
    assert "\n" not in str(error.value)
    assert pattern not in str(error.value)


def test_a_pattern_that_takes_long_on_the_empty_string_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_process, "SECONDS", 0.2)
    with pytest.raises(ValueError, match="pattern takes over"):
        secret_source({"pattern": "(?:(?:(?:a?){1000}){1000}){100}"})


def test_patterns_match_as_those_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where other libraries differ: words of other scripts, superscripts, half a surrogate pair, lookaround."""
    monkeypatch.setattr(pattern_process, "SECONDS", 0.5)
    texts = ["x² x2", "Müller", "नमस्ते", "a\ud800b", "key 04821\n12345", "\x1c", "a\u2028b"]
    for pattern in (r"\w+", r"\W+", r"\s", r"(?<=key )\d+", r"(?m)^\d+$", r"(.)\w*\1", "."):
        held = [{canonical(match[0]) or match[0] for match in re.finditer(pattern, text)} for text in texts]
        expected = {tuple(i for i, some in enumerate(held) if secret in some) for secret in set().union(*held)}
        assert {tuple(where) for where in places(found(texts, {"pattern": pattern}))} == expected, pattern


def test_no_source_is_refused() -> None:
    with pytest.raises(ValueError, match="sources must have at least one"):
        find_secrets(["a"], [], DEFAULT)


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    find_secrets(["a"] * 2500, [PatternSecrets("a")], DEFAULT, lambda *done: told.append(done))
    assert told == [(1000, 2500), (2000, 2500), (2500, 2500)]


# Planted secrets


@pytest.mark.parametrize("count", [84, 85, 126, 400, 1001])
def test_planted_secrets_are_what_their_description_says(count: int) -> None:
    """Read off the wording itself, not with the pattern; then the pattern finds the same places."""
    texts = [record.text for record in builtin_records("notes-with-secrets", count, 5)]
    holders: dict[str, list[int]] = {}
    for record, text in enumerate(texts):
        note, *sentences = text.split(" My 5-digit key is ")
        assert corpora.well_formed_note(note)
        assert len(sentences) <= 2
        for sentence in sentences:
            assert sentence[5:] == "."
            holders.setdefault(sentence[:5], []).append(record)
    assert len(holders) == 24 * count // 1000
    assert {(len(some), len(set(some))) for some in holders.values()} == {(10, 10)}
    incidence = found(texts, {"pattern": corpora.PLANTED_SECRET})
    assert sorted(places(incidence)) == sorted(holders.values())
    assert 0.15 <= incidence.private.mean() <= 0.205  # ⌊·⌋ of keys, then ⌊·⌋ + 1 of records, of one fifth
    assert [record.label for record in builtin_records("notes", count, 5)] == [
        record.label for record in builtin_records("notes-with-secrets", count, 5)
    ]


def test_too_few_notes_for_planted_secrets() -> None:
    with pytest.raises(ValueError, match="n must be at least 84, for two planted keys in 10 notes each, not 83"):
        builtin_records("notes-with-secrets", 83, 0)


# Presidio


def test_without_presidio_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "presidio_analyzer", None)
    with pytest.raises(ValueError, match=re.escape("pip install '.[presidio]'")):
        found(["a"], {"presidio": ["EMAIL_ADDRESS"]})


def test_presidio_finds_patterns_without_a_model_or_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("presidio_analyzer")

    def refused(*_: object) -> None:
        raise AssertionError("asked for the network")

    monkeypatch.setattr("socket.socket.connect", refused)
    monkeypatch.setattr("socket.getaddrinfo", refused)
    texts = [
        "Write to ann.lee@example.com or call (212) 555-1234.",
        "Card 4111 1111 1111 1111, from 10.0.0.7",
        "public",
        "again ann.lee@example.com, and bob@nowhere.invalidtld",
    ]
    entities = ["EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD", "IP_ADDRESS", "IBAN_CODE"]
    by_match = found(texts, {"presidio": entities})
    assert places(by_match) == [[0, 3], [0], [1], [1], [3]]
    assert by_match.detected == (DetectedSecrets("presidio", secrets=5, records=3, occurrences=6, nowhere=0),)
    by_entity = found(texts, {"presidio": entities, "each": "entity"})
    assert places(by_entity) == [[0, 3], [0], [1], [1], []]
    assert by_entity.detected == (DetectedSecrets("presidio", secrets=5, records=3, occurrences=5, nowhere=1),)
    with pytest.raises(ValueError, match="does not find PERSON without a spaCy model"):
        found(texts, {"presidio": ["PERSON"]})
    with pytest.raises(ValueError, match="spaCy model 'no_such_model' is not installed"):
        found(texts, {"presidio": ["PERSON"], "model": "no_such_model"})


# Size


class Made(Collection[str]):
    """Texts made when they are read, each with two of 1000 words ``w0`` to ``w999``, mostly different ones."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __contains__(self, _: object) -> bool:
        return False

    def __iter__(self) -> Iterator[str]:
        for i in range(self._count):
            first, second = i * 7919 % 1000, (i * 104729 + 1) % 1000
            yield f"The patient w{first} came to the ward in the morning, and w{second} came on the next day."


def memory_and_size(count: int, source: ListedSecrets) -> tuple[int, int]:
    """The most that was held at once, in bytes, and the number of occurrences."""
    gc.collect()
    tracemalloc.start()
    try:
        incidence = find_secrets(Made(count), [source], DEFAULT)
        return tracemalloc.get_traced_memory()[1], int(incidence.occurrences.sum())
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_is_of_occurrences_not_of_texts(tmp_path: Path) -> None:
    """A record more has two occurrences: 24 bytes for it and for each of them are 72, and its text alone has 120.

    Growing arrays have room for an eighth more, which is 2 of the 16 bytes that they take. What is loaded for the first
    search is left out; what the interpreter collects late is spread over 90 000 records.
    """
    source = written(tmp_path / "s.txt", *(f"w{i}" for i in range(1000)))
    memory_and_size(100, source)
    (few, first), (many, second) = (memory_and_size(count, source) for count in (10_000, 100_000))
    assert second - first == 180_000
    assert (many - few) / 90_000 < 72 + 2
    assert min(map(sys.getsizeof, Made(1000))) > 120


_MILLION = """
import pathlib, sys, time
sys.path[:0] = sys.argv[2:]
from test_secret_detection import DEFAULT, ListedSecrets, Made, find_secrets

def most_held():
    return int(pathlib.Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024

source = ListedSecrets(sys.argv[1])
find_secrets(Made(1000), [source], DEFAULT)
pathlib.Path("/proc/self/clear_refs").write_text("5")  # from here on
before, began = most_held(), time.process_time()
incidence = find_secrets(Made(10**6), [source], DEFAULT)
print(int(incidence.occurrences.sum()), most_held() - before, time.process_time() - began)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads Linux's account of memory")
def test_a_million_records_and_a_thousand_secrets(tmp_path: Path) -> None:
    """2·10⁶ occurrences in 10⁶ records, 24 bytes for each; and at most 8 MiB of what the interpreter does not reuse."""
    written(tmp_path / "s.txt", *(f"w{i}" for i in range(1000)))
    folders = [Path(__file__).parent, Path(__file__).parents[2] / "helpers"]
    arguments = [sys.executable, "-c", _MILLION, str(tmp_path / "s.txt"), *map(str, folders)]
    ran = subprocess.run(arguments, capture_output=True, text=True, check=True)
    occurrences, held, seconds = map(float, ran.stdout.split())
    print(f"{occurrences:.0f} occurrences in 10⁶ records: {held / 2**20:.0f} MiB, {seconds:.1f} s")
    assert occurrences == 2 * 10**6
    assert 10e6 < held < 72e6 + 2**23
    assert seconds < 120  # of CPU; about 10 on an idle machine
