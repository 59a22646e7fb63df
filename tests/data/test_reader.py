"""Files as people have them are read alike, or refused in one line that shows no cell."""

from __future__ import annotations

import csv
import gzip
import io
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.data.reader import Dialect, FileOptions, dialect_of, read_csv, read_lines

ROWS = [{"name": "Jo, A.", "height": "170.5"}, {"name": 'the "tall" one', "height": "201"}, {"name": "é", "height": ""}]


def read(path: Path, **stated: object) -> list[dict[str, str]]:
    return [row for _, row in read_csv(path, FileOptions(**stated))]  # type: ignore[arg-type]


def written(separator: str) -> str:
    def cell(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in (separator, '"', "\n")) else text

    return "".join(separator.join(map(cell, row)) + "\n" for row in [list(ROWS[0]), *(row.values() for row in ROWS)])


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_same_rows(tmp_path: Path, separator: str, end: str, encoding: str, packed: bool) -> None:
    content = written(separator).replace("\n", end).encode(encoding)
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(gzip.compress(content) if packed else content)
    if packed and encoding == "utf-16":
        with pytest.raises(ValueError, match="is not UTF-8 text"):
            read(path)
        assert read(path, encoding="utf-16") == ROWS
    else:
        assert read(path) == ROWS


def test_a_quoted_cell_far_below(tmp_path: Path) -> None:
    """DuckDB looks for quotes at the beginning only."""
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,2\n" * 30_000 + '"x, y","say ""hi""\nthere"\n')
    *_, (where, last) = read_csv(path)
    assert last == {"a": "x, y", "b": 'say "hi"\nthere'}
    assert str(where) == "line 30003"


def test_no_line_is_left_out(tmp_path: Path) -> None:
    """DuckDB would begin at the second line, where it finds two columns."""
    path = tmp_path / "texts.csv"
    path.write_text("text\nhello there\nhow are you; fine\n")
    assert read(path) == [{"text": "hello there"}, {"text": "how are you; fine"}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n3\n", "line 3: has a different number of cells"),
        ('a,b\n1,"2\n3,4\n', "line 2: is not CSV; check that every quote is closed"),
        ("1,2\n3,4\n5,6\n", "line 1: looks like a row"),
        ("a,a\n1,2\n", "columns 1 and 2 have one name; give them"),
    ],
)
def test_faults_are_one_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert "3,4" not in str(caught.value)


def test_latin_1_is_read_where_it_is_stated(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("näme;b\nmüller;2\n".encode("latin-1"))
    with pytest.raises(
        ValueError, match=r"line 1: is not UTF-8 text; .* `encoding: latin-1` in a claim and `--encoding"
    ):
        read(path)
    assert read(path, encoding="latin-1") == [{"näme": "müller", "b": "2"}]


def test_bytes_after_a_mark_of_utf_16_are_read_as_utf_16_or_not_at_all(tmp_path: Path) -> None:
    """Read as UTF-16 they are Chinese signs without a line end: a table without rows."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xff\xfe" + b"a,b\n1,2\n")
    with pytest.raises(ValueError, match="begins with the mark of UTF-16, but is not UTF-16 text"):
        read(path)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_its_mark_is_read_where_it_is_stated(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("name,b\nmüller,2\n".encode(encoding))
    with pytest.raises(ValueError, match=r"looks like UTF-16 without its mark; .* `--encoding utf-16`"):
        read(path)
    if encoding == "utf-16-le":
        assert read(path, encoding="utf-16") == [{"name": "müller", "b": "2"}]


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({"separator": "semicolons"}, "separator must be comma, semicolon, tab, bar or space, or that character, not"),
        ({"separator": ":"}, "or that character, not ':'"),
        (
            {"encoding": "latin1"},
            "encoding must be one of utf-8, utf-16, latin-1, not 'latin1'; did you mean 'latin-1'",
        ),
        ({"decimal": "x"}, 'decimal must be "." or ",", not \'x\''),
    ],
)
def test_what_may_be_stated_is_listed(stated: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        FileOptions(**stated)


def test_no_header_where_it_is_stated(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1,2\n3,4\n5,6\n")
    assert read(path, header=False)[0] == {"column 0": "1", "column 1": "2"}


def test_columns_without_a_name_are_called_as_pandas_does(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",b\n0,x\n1,y\n")
    assert read(path)[0] == {"Unnamed: 0": "0", "b": "x"}


def test_a_long_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1," + "x" * 3_000_000 + "\n")
    assert len(read(path)[0]["b"]) == 3_000_000


@pytest.mark.parametrize("name", ["*.csv", "a'b.csv", "http:x.csv", "a;b.csv", "[a].csv", "a b.csv", "a?[b]*.csv"])
def test_a_hostile_name_opens_no_other_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "other.csv").write_text("secret\n1\n")
    path = tmp_path / name
    path.write_text("a,b\n1,2\nx,y\n")
    assert read(path) == [{"a": "1", "b": "2"}, {"a": "x", "b": "y"}]


def test_the_name_of_a_folder_is_no_column(tmp_path: Path) -> None:
    """DuckDB reads `year=2020` in a path as a column."""
    path = tmp_path / "year=2020" / "a.csv"
    path.parent.mkdir()
    path.write_text("a,b\n1,2\nx,y\n")
    assert read(path) == [{"a": "1", "b": "2"}, {"a": "x", "b": "y"}]


def test_lines_have_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n{"b": "\\u0001, \\" ;"}\n')
    assert list(read_lines(path, "none")) == [(1, '{"a": 1}'), (3, '{"b": "\\u0001, \\" ;"}')]


CELLS = st.text(
    st.one_of(st.sampled_from(" ,;\t|\"'\n\r\\#0123.aé€😀"), st.characters(exclude_categories=["Cs"])), max_size=8
)
TABLES = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=6)
)


@examples(40, 1500)
@given(TABLES, st.sampled_from(",;\t|"), st.sampled_from(["\n", "\r\n"]), st.sampled_from(["utf-8", "utf-16"]))
def test_what_the_standard_library_writes_is_read(
    rows: list[list[str]], separator: str, end: str, encoding: str
) -> None:
    """It does not quote a cell for a carriage return alone, which then may end a line."""
    returns = any("\r" in cell for row in rows for cell in row)
    for quoting in (csv.QUOTE_ALL, *(() if returns else (csv.QUOTE_MINIMAL,))):
        out = io.StringIO()
        table = csv.writer(out, delimiter=separator, lineterminator=end, quoting=quoting)
        table.writerows([[f"c{index}" for index in range(len(rows[0]))], *rows])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "a.csv")
            path.write_bytes(out.getvalue().encode(encoding))
            assert [list(row.values()) for row in read(path, separator=separator)] == rows


def test_a_dialect_in_words() -> None:
    dialect = Dialect(separator=";", encoding="latin-1", header=False, compression="gzip")
    assert str(dialect) == "semicolons between cells, latin-1, no header, gzip"


def test_what_was_found_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a;b\n1,5;x\n2,5;y\n")
    dialect = dialect_of(path)
    assert dialect.separator == ";"
    stated = FileOptions(separator=";", encoding="utf-8", header=True)
    assert dialect_of(path, stated) == dialect
    assert list(read_csv(path, stated)) == list(read_csv(path))


def test_spaces_between_cells_are_noticed_and_read_where_they_are_stated(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("Weight Waist\n191 36\n189 37\n")
    with pytest.raises(ValueError, match="has spaces between its cells, it seems, and no other separator") as error:
        list(read_csv(path))
    assert "191" not in str(error.value)
    (tmp_path / "b.csv").write_text("Weight Waist\nAda 191 36\nEve 189 37\n")
    with pytest.raises(ValueError, match="has spaces between its cells"):
        list(read_csv(tmp_path / "b.csv"))
    rows = [row for _, row in read_csv(path, FileOptions(separator="space"))]
    assert rows == [{"Weight": "191", "Waist": "36"}, {"Weight": "189", "Waist": "37"}]
    assert [row for _, row in read_csv(path, FileOptions(separator="comma"))] == [
        {"Weight Waist": "191 36"},
        {"Weight Waist": "189 37"},
    ]


@pytest.mark.parametrize(
    "content",
    [
        "full name\nAda Lovelace\nAlan Turing\n",
        "text\nroom 12\nroom 14\n",
        "text\nroom 12 b\nroom 14 b\n",
        "a b\nroom 12\nroom 14 is far\n",
        "a b,c\n1 2,3\n3 4,5\n",
        "when exactly\n2020-01-01 12:30\n2020-01-02 12:30\n",
        "a b\n",
    ],
)
def test_texts_with_spaces_are_one_column(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content)
    names = content.partition("\n")[0].split(",")
    assert all(list(row) == names for _, row in read_csv(tmp_path / "a.csv"))


def test_a_header_may_count_up(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for header, is_header in (
        ("country,1960,1961,1962", True),
        (",0,1,2", True),
        ("country,1960,1961,1963", False),
        ("country,1.0,2.0,3.0", False),
        ("country,1960,1961,x", False),
    ):
        path.write_text(f"{header}\nA,1,2,3\nB,4,5,6\nC,7,8,9\n")
        if is_header:
            assert len(list(read_csv(path))) == 3
        else:
            with pytest.raises(ValueError, match="looks like a row"):
                list(read_csv(path))


def test_a_note_for_excel_is_no_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("sep=;\na;b\n1;x\n2;y\n")
    with pytest.raises(ValueError, match=r"line 1: is a note for Excel"):
        list(read_csv(path))
