"""Hostile changes to inputs: of command-line arguments, and of every kind of file that a command reads.

Each operator takes a random generator and the content, and returns the changed content. All choices come from the
generator, so that a case is made again from its number.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import random
import re
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

NUMBERS = (
    "0", "-1", "-0.0", "nan", "inf", "-inf", "1e308", "5e-324", "1e-300", "1e300", "1e400", "0.5", "1", "2", "1e-17",
    "9223372036854775807", "9223372036854775808", "2147483648", "1000000000", "1000000", "10000", "1" + "0" * 30,
    "3", "7", "0.25", "0.9", "12", "1" * 400, "1" * 5000, "0x10", "1_000", "٣", "0.9999999999999999", "1e-9",
    "1e9", "50", "100000.5",
)  # fmt: skip
"""What is put in place of a number on the command line."""

STRINGS = (
    "", " ", "-", "--", "\x1b[31mred\x1b[0m", "a\nb", "\u202egnp.exe", "x" * 100_000, "caf\udce9", "../..",
    "[red]", "[/]",
    "{0}", "%s%n", "é" * 200, "null", "nan", "~", "None", "'", '"', "a\tb", "\x00", "\x7f", "\x9b31m", "\u2028", "𝕏",
    "group(0)", "group(10000000000000000000000)", "group(2)", "user", "\ufeff", "\r\x1b[2K", "=1+1", "include",
)  # fmt: skip
"""What is put in place of a word."""

PATHS = ("/dev/null", "/dev/zero", ".", "/", "nowhere", "no/where", "x" * 300, "", "-", "model", "a\nb.jsonl",
         "\x1b[31m.yaml", "/dev/full", "notes.jsonl/x", "caf\udce9.yaml", "a\x00b", "empty.yaml")  # fmt: skip
"""What is put in place of a path."""

YAML_VALUES = (
    "2024-02-30", "2024-02-29", "9" * 5000, "1" + "0" * 30, "2147483648", "9223372036854775808", "1000000000",
    "-1", "0",
    ".nan", ".inf", "-.inf", "1e400", "1.0e+308", "5.0e-324", "-0.0", "~", "yes", "[]", "{}", "{a: b}", "[a, b]",
    "''",
    "!!python/object/apply:os.system [ls]", "!!binary 'x'", "!!timestamp foo", "!!int ''", "!!float x",
    "!!set {a, b}",
    "!!omap [a: b]", "!!pairs [a: b]", "!nothing x", "!!null x", "!!bool x", "&a [*a]", "*nowhere", "0b", "0x",
    "0o", "0_",
    "1:99:99999999999999999999999", '"\\ud800"', '"\\e[31mred"', '"\\0"', '"a\\nb"', '"\\u202e"', "[" * 3000,
    "[" * 3000 + "]" * 3000, "{a: " * 1500 + "1" + "}" * 1500, "x" * 200_000, "- a", "? [a, b]", "<<: x",
    "'unclosed", "é",
    "[&a [x,x,x,x,x,x,x,x,x], &b [*a,*a,*a,*a,*a,*a,*a,*a,*a], &c [*b,*b,*b,*b,*b,*b,*b,*b,*b], &d [*c,*c,*c"
    ",*c,*c], &e [*d,*d,*d,*d,*d,*d,*d,*d,*d], &f [*e,*e,*e,*e,*e,*e,*e,*e,*e], &g [*f,*f,*f,*f,*f,*f,*f,*f], [*g]"
    "]", "2001-12-14t21:59:43.10-05:00", "0001-01-01", "9999-99-99", "=", "n^-9999", "n^-0", "n^-" + "9" * 400,
    "100000",
    "group(2)", "user", "replace_one", "as_published", "/dev/zero", "..", "'['", "'(a+)+$'", "'(?P<x'",
    "'\\d{99999999999}'",
    "http://[", "'http://a@b'", "'{{ 1/0 }}'", "'{% for i in range(10**9) %}x{% endfor %}'", "'{text.__class__}'",
    "none",
    "'{{ \"x\" * 10**10 }}'", "packed", "{a: 1, b: 1000000000000}", "1000000", "4", "0.3", "1e-300", "64",
)  # fmt: skip
"""What is put in place of a value of YAML, as it is written."""

YAML_NUMBERS = (
    *("0", "1", "2", "3", "5", "9", "0.5", "0.25", "0.01", "1e-300", "1.0e+300", "-1", "-0.0", ".inf", ".nan", "1e400"),
    *("64", "1000", "5000", "1000000", "1000000000", "2147483648", "9223372036854775807", "1" + "0" * 30, "9" * 400),
)
"""What is put in place of a number of YAML."""

JSON_VALUES = (
    "1e400", "NaN", "-Infinity", "9" * 5000, "1" + "0" * 30, "2147483648", "9223372036854775808", "-1", "0",
    "1e308", "5e-324",
    "-0.0", "null", "true", "[]", "{}", '""', '" "', '"\\u0000"', '"\\ud800"', '"\\u001b[31mred"', '"a\\nb"',
    '"\\u202e"',
    "[" * 100_000, "[" * 500 + "]" * 500, '{"a":' * 500 + "1" + "}" * 500, '"' + "x" * 200_000 + '"', "x", "'a'",
    '"\\x"',
    '"nan"', '"1e400"', "0.1", "3", '"a"', '[1, "a", null]', '{"a": 1}', "1.5", "1e17", "123456789012",
    '"2024-02-30"',
    '"user"', '"group(0)"', '"\\u2028"', '"[red]"', '"=1+1"', '"../../x"', '"/dev/zero"', "[[]]", '["1", "0"]',
)  # fmt: skip
"""What is put in place of a value of JSON, as it is written."""

Random = random.Random


def arguments(rng: Random, given: list[str], inputs: list[str]) -> tuple[str, list[str]]:
    """A changed command line, and what was done to it.

    Args:
        rng: decides all.
        given: the command line.
        inputs: files that the command reads.
    """
    words = list(given)
    first = 2 if words[0] in ("audit", "compare", "calibrate") else 1
    indices = list(range(first, len(words)))
    numbers = [i for i in indices if _is_number(words[i])]
    paths = [i for i in indices if ("." in words[i] and not _is_number(words[i])) or words[i - 1] == "-o"]
    output = [i for i in indices if words[i - 1] in ("-o", "--output")]
    options = [i for i in indices if words[i].startswith("-")]
    kind = rng.choice(["number"] * 8 + ["word"] * 3 + ["path"] * 2 + ["output"] * 3 + ["drop", "twice", "swap", "add"])
    if kind == "number" and numbers:
        words[rng.choice(numbers)] = rng.choice(NUMBERS)
    elif kind == "path" and paths:
        words[rng.choice(paths)] = rng.choice(PATHS)
    elif kind == "output" and output and inputs:
        words[output[0]] = rng.choice(["", "./", "../case/"]) + rng.choice(inputs)
    elif kind == "drop" and indices:
        del words[rng.choice(indices)]
    elif kind == "twice" and options:
        i = rng.choice(options)
        words += words[i : i + 2]
    elif kind == "swap" and len(indices) > 1:
        i, j = rng.sample(indices, 2)
        words[i], words[j] = words[j], words[i]
    elif kind == "add":
        words += rng.choice([["--nothing"], ["--json"], ["-q"], ["--delta", rng.choice(NUMBERS)],
                             ["--seed", rng.choice(NUMBERS)], ["--help"], ["--seconds", rng.choice(NUMBERS)],
                             ["--confidence", rng.choice(NUMBERS)], ["--method", rng.choice(STRINGS)],
                             ["--guesses", rng.choice(NUMBERS)], ["--scorings", rng.choice(NUMBERS)],
                             ["--rounds", rng.choice(NUMBERS)], ["--tolerance", rng.choice(NUMBERS)],
                             ["--limit", rng.choice(NUMBERS)], ["--text", rng.choice(STRINGS)],
                             ["--gamma", rng.choice(NUMBERS)], ["--order", rng.choice(NUMBERS)],
                             ["--anchor", rng.choice(PATHS)], ["--model", rng.choice(PATHS)]])  # fmt: skip
    else:
        kind = "word"
        if indices:
            words[rng.choice(indices)] = rng.choice(STRINGS)
    return f"argument:{kind}", words


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def file(rng: Random, path: Path) -> str:
    """Changes one file, in a way that its kind decides; says how."""
    if path.is_dir():
        inner = sorted(p for p in path.rglob("*") if p.is_file())
        return file(rng, rng.choice(inner))
    operators = _OPERATORS.get(path.suffix, [_bytes])
    operator = rng.choice([*operators, *operators, *operators, _bytes])
    path.write_bytes(operator(rng, path))
    return f"{path.name}:{operator.__name__.strip('_')}"


def _bytes(rng: Random, path: Path) -> bytes:
    """Bytes changed without regard to what they mean."""
    content = path.read_bytes()
    at = rng.randrange(len(content) + 1)
    match rng.randrange(9):
        case 0:
            return content[:at]
        case 1:
            return (
                content[:at]
                + rng.choice([b"\x00", b"\xff", b"\xed\xa0\x80", b"\x1b[31m", b"\x85", b"\r"])
                + content[at:]
            )
        case 2:
            return b"\xef\xbb\xbf" + content
        case 3:
            return content[:at] + rng.randbytes(8) + content[at + 8 :]
        case 4:
            return b""
        case 5:
            return content.decode("utf-8", "replace").encode("utf-16")
        case 6:
            return content + content
        case 7:
            return content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
        case _:
            return rng.randbytes(64)


def _yaml_value(rng: Random, path: Path) -> bytes:
    """One value of a claim, in block or flow style, replaced by a hostile one."""
    text = path.read_text()
    starts = [i + 2 for i in range(len(text) - 2) if text[i : i + 2] == ": " and text[i + 2] not in "\n"]
    start = rng.choice(starts)
    end, depth = start, 0
    while end < len(text) and not (depth <= 0 and text[end] in ",}]\n"):
        depth += (text[end] in "{[") - (text[end] in "}]")
        end += 1
    return (text[:start] + rng.choice(YAML_VALUES) + text[end:]).encode("utf-8", "surrogatepass")


def _yaml_number(rng: Random, path: Path) -> bytes:
    """One number of a claim replaced by another, small or larger than anything that is meant."""
    text = path.read_text()
    if rng.random() < 0.2:
        return re.sub(
            r"records: [0-9]+", f"records: {rng.choice(['2147483648', '1000000000', '9' * 30])}", text
        ).encode()
    result = rng.choice(list(re.finditer(r"(?<=: )[0-9][0-9.e]*(?=[,}\n])", text)))
    return (text[: result.start()] + rng.choice(YAML_NUMBERS) + text[result.end() :]).encode("utf-8", "surrogatepass")


def _yaml_line(rng: Random, path: Path) -> bytes:
    """A line of a claim dropped, repeated, indented, or added."""
    lines = path.read_text().split("\n")
    at = rng.randrange(len(lines))
    match rng.randrange(7):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, lines[at])
        case 2:
            lines[at] = rng.choice([" ", "\t", "- ", "? "]) + lines[at]
        case 3:
            lines.insert(at, rng.choice(["nothing: 1", "<<: {a: b}", "---", "...", "%YAML 9.9", "1: 2", "[a]: b",
            "? {a: b}",
                                         "audits: [leave_one_out]", "variant: as_published",
                                         "audits: [reconstruction]",
                                         "!!binary YQ==: b", "2024-02-30: x", "~: x", "audits: [record_replay]",
                                         "audits: [secret_reconstruction]", "? " + "[" * 2000]))  # fmt: skip
        case 4:
            lines.insert(at, "# " + "x" * rng.choice([10, 3_000_000]))
        case 5:
            lines[at] += "  # a comment"
        case _:
            lines[at] = rng.choice(YAML_VALUES)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _jsonl_value(rng: Random, path: Path) -> bytes:
    """One value or one line of JSON Lines replaced by a hostile one, written as it is."""
    lines = path.read_text().splitlines()
    at = rng.randrange(len(lines))
    row = json.loads(lines[at])
    if rng.random() < 0.2:
        lines[at] = rng.choice(JSON_VALUES)
    else:
        name = rng.choice(list(row))
        parts = [
            f"{json.dumps(key)}: {rng.choice(JSON_VALUES) if key == name else json.dumps(row[key])}" for key in row
        ]
        if rng.random() < 0.15:
            parts.append(f"{json.dumps(name)}: {rng.choice(JSON_VALUES)}")  # a key given twice
        if rng.random() < 0.1:
            parts.append(f"{json.dumps(rng.choice(STRINGS))}: 1")
        lines[at] = "{" + ", ".join(parts) + "}"
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


def _jsonl_column(rng: Random, path: Path) -> bytes:
    """One column of JSON Lines dropped, renamed, or hostile in all rows; or rows dropped, or a long one."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    name, value = rng.choice(list(rows[0])), rng.choice(JSON_VALUES)
    match rng.randrange(6):
        case 0:
            rows = [{key: value for key, value in row.items() if key != name} for row in rows]
        case 1:
            rows = [{rng.choice(STRINGS) if key == name else key: value for key, value in row.items()} for row in rows]
        case 2:
            return "".join(f"{json.dumps(row)[:-1]}, {json.dumps(name)}: {value}}}\n" for row in rows).encode()
        case 3:
            rows = rows[: rng.randrange(3)]
        case 4:
            rows = rows[:1] * len(rows)
        case _:
            rows[0][name] = "word " * rng.choice([1000, 100_000])
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _csv_cell(rng: Random, path: Path) -> bytes:
    """One cell, header, row or column of CSV changed."""
    with path.open(newline="") as opened:
        rows = list(csv.reader(opened))
    at, column = rng.randrange(len(rows)), rng.randrange(len(rows[0]))
    values = [*STRINGS, *NUMBERS, "'unclosed", "True", "[]", "2024-02-30", "1,5", "1/0"]
    match rng.randrange(7):
        case 0 | 1:
            rows[at][column] = rng.choice(values)
        case 2:
            rows = [rows[0], *([*row[:column], rng.choice(values), *row[column + 1 :]] for row in rows[1:])]
        case 3:
            rows[0][column] = rng.choice([*STRINGS, rows[0][column - 1]])
        case 4:
            rows = [row[:column] + row[column + 1 :] for row in rows]
        case 5:
            rows = rows[: rng.randrange(3)]
        case _:
            rows[at] = rows[at][:-1] if rng.random() < 0.5 else [*rows[at], "x"]
    out = io.StringIO()
    csv.writer(out, lineterminator=rng.choice(["\n", "\r\n"])).writerows(rows)
    text = out.getvalue() if rng.random() < 0.8 else out.getvalue().replace(",", rng.choice([";", ',"', "\t"]))
    return text.encode("utf-8", "surrogatepass")


def _parquet_column(rng: Random, path: Path) -> bytes:
    """One column of Parquet with another type, another name, or hostile values."""
    import decimal

    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException):  # damaged by a change before
        return path.read_bytes()
    at, rows = rng.randrange(table.num_columns), table.num_rows
    arrays: list[Callable[[], Any]] = [
        lambda: pyarrow.array([None] * rows),
        lambda: pyarrow.array([[1]] * rows),
        lambda: pyarrow.array([{"a": 1}] * rows),
        lambda: pyarrow.array([b"\xff\x00"] * rows),
        lambda: pyarrow.array([float("nan")] * rows),
        lambda: pyarrow.array([float("inf"), *[1.0] * (rows - 1)]),
        lambda: pyarrow.array([True] * rows),
        lambda: pyarrow.array([2**63 - 1] * rows),
        lambda: pyarrow.array([2**64 - 1] * rows, pyarrow.uint64()),
        lambda: pyarrow.array([decimal.Decimal("1.5")] * rows),
        lambda: pyarrow.array([2**62] * rows, pyarrow.timestamp("ns")),
        lambda: pyarrow.array([-(2**62)] * rows, pyarrow.timestamp("s")),
        lambda: pyarrow.array([2**62] * rows, pyarrow.duration("s")),
        lambda: pyarrow.array(["\x1b[31m\x00a\nb"] * rows),
        lambda: pyarrow.array([""] * rows),
        lambda: pyarrow.array(["a", *[None] * (rows - 1)]).dictionary_encode(),
        lambda: pyarrow.array([1.5] * rows, pyarrow.float16()),
        lambda: pyarrow.Array.from_buffers(
            pyarrow.utf8(), rows, [None, pyarrow.py_buffer(struct.pack(f"{rows + 1}i", *range(rows + 1))),
                                   pyarrow.py_buffer(b"\xff" * rows)]),
    ]  # fmt: skip
    name = table.column_names[at]
    match rng.randrange(5):
        case 0:
            name = rng.choice([*STRINGS[4:], table.column_names[at - 1]]).encode("utf-8", "replace").decode()
            table = table.rename_columns([name if i == at else old for i, old in enumerate(table.column_names)])
        case 1:
            table = table.slice(0, rng.randrange(3))
        case _:
            table = table.set_column(at, name, rng.choice(arrays)())
    out = io.BytesIO()
    pyarrow.parquet.write_table(table, out)
    return out.getvalue()


def _json_value(rng: Random, path: Path) -> bytes:
    """One value of a JSON document replaced; often with the hashes mended, so that more than the seal is tested."""
    document = json.loads(path.read_text())
    indices: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in pairs:
            indices.append((value, key))
            walk(inner)

    walk(document)
    names = sorted({str(key) for _, key in indices})  # each name alike, however often it is there
    name = rng.choice(names)
    holder, key = rng.choice([index for index in indices if str(index[1]) == name])
    new = rng.choice(JSON_VALUES)
    if rng.random() < 0.15:
        del holder[key]
    else:
        try:
            holder[key] = json.loads(new)
        except (ValueError, RecursionError):
            holder[key] = "PLACEHOLDER"
    if isinstance(document, dict) and "sha256" in document and rng.random() < 0.8 and name != "sha256":
        document.pop("sha256")
        try:
            body = json.dumps(document, sort_keys=True, separators=(",", ":"))
            document["sha256"] = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
        except (TypeError, RecursionError):
            pass
    content = json.dumps(document, indent=2).replace('"PLACEHOLDER"', new).encode()
    plan = path.parent.parent / "plan.json"
    if path.name == "manifest.json" and plan.is_file() and rng.random() < 0.9:
        about = json.loads(plan.read_text())
        about["manifest_sha256"] = hashlib.sha256(content).hexdigest()
        plan.write_text(json.dumps(about))
        for other in (path.parent.parent / "scores.json", path.parent.parent / "bound.json"):
            if other.is_file():
                _mend(other, about["manifest_sha256"])
    return content


def _mend(path: Path, manifest: str) -> None:
    document = json.loads(path.read_text())
    document["manifest_sha256"] = manifest
    document.pop("sha256", None)
    body = json.dumps(document, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps({**document, "sha256": hashlib.sha256(body.encode()).hexdigest()}))


def _sqlite_cell(rng: Random, path: Path) -> bytes:
    """One cell of a ledger, its schema or its settings changed."""
    statements = [
        ("UPDATE entries SET body = ? WHERE seq = ?", rng.choice(JSON_VALUES)),
        ("UPDATE entries SET run = ? WHERE seq = ?", rng.choice(STRINGS).encode("utf-8", "replace").decode()),
        ("UPDATE entries SET kind = ? WHERE seq = ?", rng.choice(["event", "x", "\x1b[31m", ""])),
        ("UPDATE entries SET hash = ? WHERE seq = ?", rng.choice(["", "0" * 64, b"\xff"])),
        ("UPDATE entries SET body = ? WHERE seq = ?", b"\xff\x00"),
        ("DELETE FROM entries WHERE seq = ?", None),
        ("DROP TABLE entries", None),
        ("PRAGMA user_version = 99", None),
        ("ALTER TABLE entries RENAME COLUMN body TO other", None),
        ("CREATE TABLE more(a)", None),
    ]
    statement, value = rng.choice(statements)
    connection = sqlite3.connect(path)
    try:
        last = connection.execute("SELECT max(seq) FROM entries").fetchone()[0]
        seq = rng.randrange(1, last + 1)
        values = [value, seq] if statement.count("?") == 2 else [seq] if "?" in statement else []
        with connection:
            connection.execute(statement, values)
    except sqlite3.Error:
        pass
    finally:
        connection.close()
    return path.read_bytes()


def _safetensors_header(rng: Random, path: Path) -> bytes:
    """The header of a safetensors file changed: a number, a name, a shape, a type, its length."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, rest = json.loads(content[8 : 8 + length]), content[8 + length :]
    match rng.randrange(6):
        case 0:
            return struct.pack("<Q", rng.choice([0, 2**63, length + 1, 2**32])) + content[8:]
        case 1:
            name = rng.choice([key for key in header if key != "__metadata__"])
            header[name][rng.choice(["dtype", "shape", "data_offsets"])] = json.loads(
                rng.choice(
                    [
                        '"F64"',
                        '"I64"',
                        '"BF16"',
                        '"F8_E4M3"',
                        "[]",
                        "[0, 0]",
                        "[1, 1]",
                        "[18446744073709551615, 2]",
                        "null",
                    ]
                )
            )
        case 2 if "embedder" in header.get("__metadata__", {}):
            about = json.loads(header["__metadata__"]["embedder"])
            inner = about.get("settings") if rng.random() < 0.6 else None
            holder = inner if isinstance(inner, dict) and inner else about
            value = rng.choice(JSON_VALUES)
            name = rng.choice(list(holder))
            holder[name] = "PLACEHOLDER"
            header["__metadata__"]["embedder"] = json.dumps(about).replace('"PLACEHOLDER"', value)
        case 3:
            header["__metadata__"] = json.loads(
                rng.choice(["{}", '{"embedder": ""}', '{"embedder": "[]"}', '{"dpassay": "x"}'])
            )
        case 4:
            rest = b"\xff" * len(rest) if rng.random() < 0.5 else b"\x00" * len(rest)
        case _:
            name = rng.choice([key for key in header if key != "__metadata__"])
            header[rng.choice(STRINGS)] = header.pop(name)
    try:
        packed = json.dumps(header).encode()
    except ValueError:
        return content[:8]
    return struct.pack("<Q", len(packed)) + packed + rest


_OPERATORS: dict[str, list[Callable[[Random, Path], bytes]]] = {
    ".yaml": [_yaml_value, _yaml_value, _yaml_number, _yaml_number, _yaml_line],
    ".jsonl": [_jsonl_value, _jsonl_value, _jsonl_column],
    ".csv": [_csv_cell],
    ".parquet": [_parquet_column],
    ".json": [_json_value],
    ".sqlite": [_sqlite_cell],
    ".safetensors": [_safetensors_header],
}
