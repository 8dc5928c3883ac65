"""Raw data in: tables from files, from a Hugging Face dataset, or from a local copy of one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ibcl.experiments.benchmarks.benchmark import PARTS, Part
from ibcl.experiments.benchmarks.description import BenchmarkDescription
from ibcl.experiments.benchmarks.extraction import Inputs

# What data sets call their parts, where a description does not say.
USUAL_SPLITS: Mapping[Part, tuple[str, ...]] = {
    "train": ("train",),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}


@dataclass(frozen=True)
class Table:
    """One part of the raw data.

    Parameters
    ----------
    columns
        Labels and whatever else the tasks look at.
    inputs
        Texts or encoded images, or the feature matrix itself.
    """

    columns: Mapping[str, NDArray[Any]]
    inputs: Inputs | NDArray[np.float32]


Tables = Mapping[Part, Table]


@dataclass(frozen=True)
class InMemory:
    """Inputs in a list."""

    items: Sequence[Any]

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        """Return the inputs of these rows."""
        return [self.items[row] for row in rows]


@dataclass(frozen=True)
class FromDataset:
    """Inputs in a column of a Hugging Face dataset, read when they are taken."""

    dataset: Any
    column: str

    def take(self, rows: NDArray[np.int64]) -> list[Any]:
        """Return the inputs of these rows: texts as they are, images as encoded bytes."""
        return [_encoded(value) for value in self.dataset.select(rows)[self.column]]


def data_folder(data: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder with local copies: ``data``, or ``IBCL_DATA``, or ``None`` for online.

    Examples
    --------
    >>> data_folder("no-such-folder")
    Traceback (most recent call last):
    ...
    FileNotFoundError: the data folder no-such-folder does not exist: give an existing one as \
`data` or in IBCL_DATA, or none to load from the public source
    """
    chosen = data or os.environ.get("IBCL_DATA")
    if not chosen:
        return None
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"the data folder {folder} does not exist: give an existing one as `data` or in "
            "IBCL_DATA, or none to load from the public source"
        )
    return folder


def read_dataset(
    description: BenchmarkDescription, folder: Path | None, cache: Path
) -> tuple[Tables, str]:
    """Read a Hugging Face dataset, from the hub or from its copy in a data folder.

    Returns the tables and the name of the source.
    """
    hub = description.hub
    assert hub is not None
    try:
        import datasets
    except ImportError as error:
        raise ImportError(
            f"the benchmark {description.name} needs a package that is not installed: "
            'pip install "ibcl[bench]"'
        ) from error
    if folder is None:
        try:
            raw = datasets.load_dataset(hub, description.config)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise OSError(
                f"the dataset {hub} cannot be loaded from the Hugging Face hub ({reason}): connect "
                "to the internet, or set IBCL_DATA to a folder with a copy in "
                f"{hub.split('/')[-1]}/"
            ) from error
        source = f"hub:{hub}"
    else:
        copy = folder / hub.split("/")[-1]
        if not copy.is_dir():
            raise FileNotFoundError(
                f"the data folder {folder} has no {copy.name}/: put a copy of the dataset {hub} "
                "there, or unset IBCL_DATA to load it from the hub"
            )
        try:
            raw = datasets.load_dataset(str(copy), cache_dir=str(cache / "datasets"))
        except (OSError, ValueError, datasets.exceptions.DatasetGenerationError) as error:
            reason = " ".join(str(error.__cause__ or error).split())
            raise ValueError(
                f"{copy} cannot be read as a dataset ({reason}): expected Parquet files named "
                "after their splits, such as train-00000-of-00001.parquet"
            ) from error
        source = f"local copy of {hub}"
    tables: dict[Part, Table] = {}
    wanted = description.splits or USUAL_SPLITS
    for part in PARTS:
        names = wanted.get(part, ())
        found = next((name for name in names if name in raw), None)
        if found is not None:
            tables[part] = _dataset_table(raw[found], description, f"{source}, split {found}")
        elif part in (description.splits or ("train",)):
            raise ValueError(
                f"the {source} has no split {' or '.join(names)}, only {', '.join(sorted(raw))}"
            )
    return tables, source


def read_files(description: BenchmarkDescription, folder: Path) -> tuple[Tables, str]:
    """Read the Parquet or CSV files of a description, relative to ``folder``."""
    files = description.files
    assert files is not None
    by_part: Mapping[Part, str] = {"train": files} if isinstance(files, str) else files
    tables: dict[Part, Table] = {}
    for part, name in by_part.items():
        path = folder / name
        frame = _read_frame(path)
        wanted = [*description.columns(), *_input_columns(description)]
        _require_columns(wanted, list(frame.columns), str(path))
        columns = {name: frame[name].to_numpy() for name in description.columns()}
        inputs: Inputs | NDArray[np.float32]
        if description.numbers is not None:
            inputs = _numbers(frame[list(description.numbers)], str(path))
        else:
            (column,) = _input_columns(description)
            inputs = InMemory([_encoded(value, path.parent) for value in frame[column]])
        tables[part] = Table(columns, inputs)
    return tables, ", ".join(by_part.values())


def _dataset_table(dataset: Any, description: BenchmarkDescription, source: str) -> Table:
    import datasets

    inputs_wanted = _input_columns(description)
    _require_columns([*description.columns(), *inputs_wanted], dataset.column_names, source)
    columns = {}
    for name in description.columns():
        values = np.asarray(dataset[name][:])
        feature = dataset.features[name]
        if isinstance(feature, datasets.ClassLabel) and feature.names:
            values = np.asarray(feature.names)[values]
        columns[name] = values
    if description.numbers is not None:
        frame = dataset.select_columns(list(inputs_wanted)).to_pandas()
        return Table(columns, _numbers(frame, source))
    (column,) = inputs_wanted
    if description.image is not None:
        # Encoded bytes are what is hashed and kept in memory; decoding happens batch by batch.
        dataset = dataset.cast_column(column, datasets.Image(decode=False))
    return Table(columns, FromDataset(dataset, column))


def _input_columns(description: BenchmarkDescription) -> tuple[str, ...]:
    if description.numbers is not None:
        return description.numbers
    return tuple(name for name in (description.text, description.image) if name is not None)


def _require_columns(wanted: Sequence[str], present: Sequence[str], source: str) -> None:
    missing = [name for name in wanted if name not in present]
    if missing:
        shown = ", ".join(map(str, present[:20])) + (", ..." if len(present) > 20 else "")
        raise ValueError(f"{source} has no column {missing[0]!r}, only {shown}")


def _read_frame(path: Path) -> pd.DataFrame:
    if not path.exists():
        raise FileNotFoundError(f"there is no data file {path}")
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        if path.suffix == ".csv":
            return pd.read_csv(path)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    raise ValueError(f"{path} is neither .parquet nor .csv: convert it to one of them")


def _numbers(frame: pd.DataFrame, source: str) -> NDArray[np.float32]:
    try:
        values: NDArray[np.float32] = frame.to_numpy(dtype=np.float32)
    except (ValueError, TypeError):
        raise ValueError(f"{source}: the columns named in numbers must hold numbers") from None
    if not np.isfinite(values).all():
        raise ValueError(f"{source}: the columns named in numbers have missing or infinite values")
    return values


def _encoded(value: Any, folder: Path = Path()) -> str | bytes:
    """Return a text as it is and an image, in any of the usual forms, as its encoded bytes."""
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, dict) and ("bytes" in value or "path" in value):
        if value.get("bytes") is not None:
            return bytes(value["bytes"])
        return Path(folder, value["path"]).read_bytes()
    raise ValueError(f"expected a text or an encoded image, but got {type(value).__name__}")
