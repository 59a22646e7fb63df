"""Records from the library `datasets` (``pip install '.[datasets]'``): hub data sets and local folders.

Only data are read: the library runs no code of a data set, and formats other than those below, some of which can
contain pickles, are refused. The library keeps a hub data set in its own cache, as usual. Local folders are read in
place, without a copy.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dpassay.base.extras import install
from dpassay.data.column_names import no_column
from dpassay.data.parquet import rows_at_once

_FORMATS = ("parquet", "json", "csv", "text", "arrow")
_CACHED = "cache"  # the library's name for a hub data set in its cache
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_SILENT = 60  # above every level of `logging`
_ROWS = 1000


@dataclass(frozen=True, slots=True)
class HubDataset:
    """One split of a data set of the library `datasets`.

    Attributes:
        name: a hub id such as ``fancyzhx/ag_news``, a folder that `save_to_disk` wrote, or a folder of data files.
        split: its name.
        subset: the configuration, for hub ids and folders of data files that have several.
        allow_network: whether a hub id may be downloaded; otherwise it must be in the library's cache.
    """

    name: str
    split: str = "train"
    subset: str | None = None
    allow_network: bool = False

    def __str__(self) -> str:
        return f"dataset {self.name}"

    def rows(self, wanted: Collection[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The wanted columns, row by row, each with the location of the row; class labels are given by name.

        Raises:
            ValueError: one line, which never contains the content of a row.
        """
        try:
            import datasets
        except ImportError:
            raise ValueError(
                f"the library datasets is not installed; data of source dataset need {install('datasets')}"
            ) from None
        with _quietly(datasets, self.allow_network):
            splits = self._splits(datasets, wanted)
        if self.split not in splits:
            raise ValueError(f"{self}: there is no split {self.split!r}; it has {', '.join(splits)}")
        table = splits[self.split].with_format(None)
        names, features = table.column_names, table.features or {}
        if names is not None:
            if missing := sorted(set(wanted) - set(names)):
                raise ValueError(f"{self}: {no_column(missing[0], names)}")
            table = table.select_columns(sorted(wanted))
        labels = {column: kind.names for column, kind in features.items() if isinstance(kind, datasets.ClassLabel)}
        number = 0
        try:
            for batch in table.iter(batch_size=_ROWS):
                columns = [_named(values, labels.get(column)) for column, values in batch.items()]
                for values in zip(*columns, strict=True):
                    number += 1
                    yield f"row {number}", dict(zip(batch, values, strict=True))
        except Exception as error:  # of many types, and some messages quote the data
            raise ValueError(f"{self}: cannot be read beyond row {number} ({type(error).__name__})") from None

    def _splits(self, datasets: Any, wanted: Collection[str]) -> Mapping[str, Any]:
        """The splits by name."""
        folder = Path(self.name)
        if not folder.is_dir():
            return self._splits_of_hub(datasets)
        try:
            if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
                if self.subset is not None:
                    raise ValueError("subset is for hub ids and folders of data files only; leave it out")
                saved = datasets.load_from_disk(str(folder))
                return saved if isinstance(saved, dict) else {str(saved.split or "train"): saved}
            _check_stays_inside(folder)
            builder = self._builder(datasets, _FORMATS)
            if _format(builder) == "parquet":
                _bound(builder.config, wanted)
            streamed: Mapping[str, Any] = builder.as_streaming_dataset()
            return streamed
        except Exception as error:  # of many types; a user needs one line
            raise ValueError(f"{self}: {_reason(error)}") from None

    def _splits_of_hub(self, datasets: Any) -> Mapping[str, Any]:
        formats = {module.name for module in pkgutil.iter_modules(datasets.packaged_modules.__path__)}
        if (
            Path(self.name).exists()
            or self.name in formats  # the library would search the working folder for such files
            or not _HUB_ID.fullmatch(self.name)
            or self.name.startswith(".")
        ):
            raise ValueError(
                f"{self}: is neither a folder nor a hub id such as fancyzhx/ag_news; for a file use source: file"
            )
        try:
            builder = self._builder(datasets, (*_FORMATS, _CACHED))
            builder.download_and_prepare()
            prepared: Mapping[str, Any] = builder.as_dataset()
            return prepared
        except OSError as error:
            if self.allow_network:
                raise ValueError(f"{self}: could not be downloaded ({type(error).__name__})") from None
            raise ValueError(
                f"{self}: is not a local folder, and as a hub id it is not in the local cache of datasets, and the "
                "network is not used; --download fetches it"
            ) from None
        except Exception as error:
            raise ValueError(f"{self}: {_reason(error)}") from None

    def _builder(self, datasets: Any, formats: tuple[str, ...]) -> Any:
        builder = datasets.load_dataset_builder(self.name, self.subset)
        if _format(builder) not in formats:
            raise ValueError(f"has files of format {_format(builder)}; the supported formats are {', '.join(_FORMATS)}")
        return builder


@contextmanager
def _quietly(datasets: Any, allow_network: bool) -> Iterator[None]:
    """Silences the library, whose messages may quote the data, and keeps it offline unless `allow_network`."""
    from huggingface_hub import constants

    datasets.logging.set_verbosity(_SILENT)
    datasets.disable_progress_bars()
    before = datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    try:
        if not allow_network:
            datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before


def _check_stays_inside(folder: Path) -> None:
    """Checks that the metadata of a folder name no files elsewhere, which the library would fetch."""
    for name in ("README.md", ".huggingface.yaml"):
        text = (folder / name).read_text(encoding="utf-8") if (folder / name).is_file() else ""
        parts = re.split(r"^---[ \t]*$", text, flags=re.MULTILINE) if name == "README.md" else ["", text]
        about = yaml.safe_load(parts[1]) if len(parts) > 1 else None
        if isinstance(about, dict) and "://" in str(about.get("configs")):
            raise ValueError(f"its {name} names files outside of the folder; only files inside are read")


def _format(builder: Any) -> str:
    return type(builder).__module__.removeprefix("datasets.packaged_modules.").partition(".")[0]


def _bound(config: Any, wanted: Collection[str]) -> None:
    """Makes the library read only the wanted columns of Parquet files, in batches of bounded memory."""
    import pyarrow.parquet

    files = [Path(file) for some in config.data_files.values() for file in some if Path(file).is_file()]
    for file in files:
        with pyarrow.parquet.ParquetFile(file) as read:
            if not set(wanted).issubset(read.schema_arrow.names):
                return  # nothing will be read
            rows = rows_at_once(file, read.metadata, wanted)
        config.columns, config.batch_size = sorted(wanted), min(rows, config.batch_size or rows)


def _named(values: list[Any], names: list[str] | None) -> list[Any]:
    """Class labels by name; an unknown label, −1, is missing."""
    if names is None:
        return values
    return [names[value] if value is not None and 0 <= value < len(names) else None for value in values]


def _reason(error: Exception) -> str:
    """An error about the metadata of a data set in one line, or the type of the error."""
    said = " ".join(str(error).split())[:200]
    return said if type(error) is ValueError and said else f"cannot be read ({type(error).__name__})"
