"""The data of a claim. Each source is one class, which validates, locates, loads and describes itself.

A new source is a class here and a member of `Data`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from dpassay.base.errors import InputError, input_errors
from dpassay.data.chats import TextOptions
from dpassay.data.hub_datasets import HubDataset
from dpassay.data.reader import CsvOptions
from dpassay.data.records import Record, builtin_records, read_records, written_as

KEYS = 100_000
"""The number of 5-digit keys."""

BUILTIN_SEED = 0
"""The seed that decides which builtin records are drawn; public, and independent of noise."""


_LIMITS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


class Strict(BaseModel):
    """A part of a claim; unknown keys are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema, in which a key that a class narrows means what its base class says.

        Pydantic leaves limits of a number behind a validator as it names them itself; they get the schema's names.
        """
        schema = handler(core)
        for name, value in handler.resolve_ref_schema(schema).get("properties", {}).items():
            for part in value.get("anyOf", []):
                for own, named in _LIMITS.items():
                    if own in part:
                        part[named] = part.pop(own)
            bases = [base for base in cls.__mro__ if issubclass(base, BaseModel)]
            said = (base.model_fields[name].description for base in bases if name in base.model_fields)
            if (meaning := next(filter(None, said), None)) is not None:
                value.setdefault("description", meaning)
        return schema


def with_paths(value: Any, change: Callable[[Path], Path]) -> Any:
    """A part of a claim, with every path in it changed."""
    if isinstance(value, Path):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(with_paths(part, change) for part in value)
    if not isinstance(value, BaseModel):
        return value
    changed = {name: with_paths(part, change) for name, part in value}
    return value.model_copy(update={name: part for name, part in changed.items() if part != getattr(value, name)})


def paths_in(value: Any) -> list[Path]:
    """All paths in a part of a claim."""
    if isinstance(value, Path):
        return [value]
    parts = [part for _, part in value] if isinstance(value, BaseModel) else value
    return [path for part in parts for path in paths_in(part)] if isinstance(parts, list | tuple) else []


class DataSource(Strict):
    """Base class of sources of private data."""

    def load(self, count: int | None, download: bool, labels: Sequence[str] = ()) -> Sequence[Record]:
        """The records, in the order of the source.

        Args:
            count: public number of records in the claim; None if not stated.
            download: whether data may be fetched from the network.
            labels: the public list of labels; empty if labels are not used.

        Raises:
            ValueError, OSError: if the data are missing or do not match the claim.
        """
        raise NotImplementedError

    def reads(self) -> list[Path]:
        """Files and folders of this machine that `load` reads."""
        return paths_in(self)

    def located(self, folder: Path) -> Self:
        """The source with relative paths resolved against a folder, that of the claim's file."""
        located: Self = with_paths(self, lambda path: folder / path)
        return located

    def described(self) -> dict[str, Any]:
        """The source in JSON types, for a report: files and folders by name only, since paths describe the machine."""
        named: Self = with_paths(self, lambda path: Path(path.name))
        return named.model_dump(mode="json", exclude_none=True)

    def facts(self) -> dict[str, str]:
        """How the data were drawn, as rows of a report."""
        return {}


class BuiltinData(DataSource):
    """Data that ship with the tool: `keys` (made-up), `notes` (RAND Health Insurance Experiment), notes with keys."""

    source: Literal["builtin"] = Field(description="data that ship with dpassay")
    name: Literal["keys", "notes", "notes-with-secrets"] = Field(
        description="made-up keys of five digits, notes from a survey of real people, or such notes with keys in them"
    )

    def load(self, count: int | None, download: bool, labels: Sequence[str] = ()) -> Sequence[Record]:
        if count is None:
            raise ValueError("public.records: is missing; it says how many builtin records are drawn")
        return builtin_records(self.name, count, BUILTIN_SEED)

    def facts(self) -> dict[str, str]:
        return {"seed of the public choice of builtin records": str(BUILTIN_SEED)}


class WrittenFile(Strict):
    """How a CSV file is written; what is not stated is found out from its first rows."""

    separator: Literal["comma", "semicolon", "tab", "bar", "space"] | None = Field(
        None, description="what is between cells"
    )
    encoding: Literal["utf-8", "utf-16", "latin-1"] | None = Field(None, description="how characters are written")
    header: bool | None = Field(None, description="whether the first line names the columns")

    @property
    def stated(self) -> CsvOptions:
        """What is stated of the file."""
        return CsvOptions(separator=self.separator, encoding=self.encoding, header=self.header)

    def read_as(self, path: Path) -> dict[str, str]:
        """How a file is read, as a row of a report; none if the file is gone."""
        return {"the data were read as": written_as(path, self.stated)} if path.is_file() else {}


class FileData(WrittenFile, DataSource):
    """A CSV, TSV, JSON Lines or Parquet file; the path is relative to the claim file."""

    source: Literal["file"] = Field(description="a file of texts")
    path: Path = Field(description="a .csv, .tsv, .jsonl or .parquet file, relative to the claim file")
    text: str = Field("text", description="column that holds the text")
    label: str | None = Field(None, description="column that holds the label, if labels are used")
    id: str | None = Field(None, description="column with a stable id; else the content's hash is the id")
    user: str | None = Field(None, description="column that names the user, for unit `user`")
    join: Literal["turns"] | None = Field(
        None, description="turns: the text is a list of the turns of a chat, joined to lines `role: content`"
    )

    def load(self, count: int | None, download: bool, labels: Sequence[str] = ()) -> Sequence[Record]:
        return read_records(
            self.path,
            text=self.text,
            label=self.label,
            id=self.id,
            user=self.user,
            labels=labels,
            stated=TextOptions(separator=self.separator, encoding=self.encoding, header=self.header, join=self.join),
        )

    def facts(self) -> dict[str, str]:
        return self.read_as(self.path)


class DatasetData(DataSource):
    """A data set of the library `datasets`: a hub id or a local folder, which is relative to the claim file."""

    source: Literal["dataset"] = Field(description="a data set that the library `datasets` reads")
    name: str = Field(description="a hub id, a folder written by `save_to_disk`, or a folder of data files")
    split: str = Field("train", description="the part of the data set")
    subset: str | None = Field(None, description="the configuration, if there are several")
    text: str = Field("text", description="column that holds the text")
    label: str | None = Field(None, description="column that holds the label, if labels are used")
    id: str | None = Field(None, description="column with a stable id; else the content's hash is the id")
    user: str | None = Field(None, description="column that names the user, for unit `user`")
    join: Literal["turns"] | None = Field(
        None, description="turns: the text is a list of the turns of a chat, joined to lines `role: content`"
    )

    def load(self, count: int | None, download: bool, labels: Sequence[str] = ()) -> Sequence[Record]:
        source = HubDataset(self.name, self.split, self.subset, download)
        return read_records(
            source,
            text=self.text,
            label=self.label,
            id=self.id,
            user=self.user,
            labels=labels,
            stated=TextOptions(join=self.join),
        )

    def reads(self) -> list[Path]:
        return [Path(self.name)] if is_local(self.name) else []

    def located(self, folder: Path) -> Self:
        if not (folder / self.name).is_dir():
            return self
        return self.model_copy(update={"name": str(folder / self.name)})

    def described(self) -> dict[str, Any]:
        result = super().described()
        return {**result, "name": Path(self.name).resolve().name} if is_local(self.name) else result


Data = Annotated[BuiltinData | FileData | DatasetData, Field(discriminator="source")]
"""Every source; the key `source` selects one."""


def load(source: DataSource, count: int | None, download: bool = False, labels: Sequence[str] = ()) -> Sequence[Record]:
    """The private records of a source.

    Args:
        source: of the claim.
        count: public number of records in the claim; None if not stated.
        download: whether a data set of the hub may be fetched.
        labels: the public list of labels; empty if labels are not used.

    Raises:
        InputError: if the data are missing, do not match the claim, or hold no record.
    """
    with input_errors("data: "):
        records = source.load(count, download, labels)
    if not records:
        raise InputError(f"data: {_source_name(source)} holds no record; a run needs at least one")
    return records


def _source_name(source: DataSource) -> str:
    return ", ".join(map(str, source.reads())) or str(source.described().get("name", "the source"))


def is_local(name: str) -> bool:
    """Whether the name of a model or a data set is a folder on this machine rather than a hub id."""
    return Path(name).is_absolute() or Path(name).is_dir()
