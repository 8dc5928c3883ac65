"""What a knowledge base remembers of the tables it learnt from.

The first task fixes the feature columns and their order, the classes, and the standardisation (each
feature's mean and standard deviation); later tasks and predictions use the same, because the
parameters of the model mean nothing without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from pydantic import BaseModel, ConfigDict

Numbers = NDArray[np.float64]


class Standardisation(BaseModel):
    """z = (x − centre) / scale, column by column."""

    model_config = ConfigDict(frozen=True)

    centre: tuple[float, ...]
    scale: tuple[float, ...]

    @classmethod
    def fit(cls, x: Numbers) -> Standardisation:
        """Take mean and standard deviation; a column that does not vary keeps its scale."""
        centre, scale = x.mean(0), x.std(0)
        constant = scale <= 1e-12 * np.maximum(1, abs(centre))
        return cls(centre=tuple(centre), scale=tuple(np.where(constant, 1.0, scale)))

    def apply(self, x: Numbers) -> Numbers:
        """Standardise."""
        return np.asarray((x - np.array(self.centre)) / np.array(self.scale))


class Schema(BaseModel):
    """Feature columns, classes (None for regression), and their standardisation (None for none)."""

    model_config = ConfigDict(frozen=True)

    features: tuple[str, ...]
    classes: tuple[str, ...] | None
    inputs: Standardisation | None
    target: Standardisation | None

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        label: str,
        *,
        features: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        regression: bool = False,
        standardise: bool = True,
    ) -> Schema:
        """Take the schema from the first task's table."""
        columns(frame, [label])
        if features is None:
            features = [
                name for name in frame.columns if name != label and is_numeric_dtype(frame[name])
            ]
            if not features:
                raise ValueError("The file has no numeric column beside the label to learn from")
        if label in features:
            raise ValueError(f"The label column {label!r} cannot be a feature as well")
        names = None if regression else class_names(frame[label], classes)
        x = numbers(frame, features)
        y = numbers(frame, [label]) if regression else None
        return cls(
            features=tuple(features),
            classes=names,
            inputs=Standardisation.fit(x) if standardise else None,
            target=Standardisation.fit(y) if y is not None and standardise else None,
        )

    def check(self, features: Sequence[str] | None, classes: Sequence[str] | None) -> None:
        """Refuse columns or classes that say otherwise than the knowledge base."""
        for what, given, fixed in (
            ("features", features, self.features),
            ("classes", classes, self.classes or ()),
        ):
            if given is not None and tuple(given) != fixed:
                raise ValueError(
                    f"The {what} of this knowledge base are {', '.join(fixed) or 'none'}, and "
                    f"cannot be {', '.join(given)} now; leave the option out, or start another "
                    "knowledge base"
                )

    def x(self, frame: pd.DataFrame) -> Numbers:
        """Return the features of a table, standardised."""
        values = numbers(frame, self.features)
        return values if self.inputs is None else self.inputs.apply(values)

    def y(self, frame: pd.DataFrame, label: str) -> NDArray[Any]:
        """Return the labels of a table: class numbers, or standardised targets."""
        if self.classes is None:
            targets = numbers(frame, [label])
            return (targets if self.target is None else self.target.apply(targets))[:, 0]
        columns(frame, [label])
        position = {name: index for index, name in enumerate(self.classes)}
        found = labels(frame[label])
        unseen = sorted({name for name in found if name not in position})
        if unseen:
            raise ValueError(
                f"The label {unseen[0]!r} is not one of the classes {', '.join(self.classes)}, "
                "which the first task fixed; name all classes with --classes when creating a "
                "knowledge base"
            )
        return np.array([position[name] for name in found])

    def original(self, values: Any) -> Numbers:
        """Bring expected values of a regression back to the target's own units."""
        array = np.asarray(values, dtype=np.float64)
        if self.target is None:
            return array
        return np.asarray(array * self.target.scale[0] + self.target.centre[0])


def columns(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Refuse a table without these columns."""
    missing = [name for name in names if name not in frame]
    if missing:
        raise ValueError(
            f"The file has no column {', '.join(map(repr, missing))}; it has "
            f"{', '.join(map(repr, frame.columns))}"
        )


def numbers(frame: pd.DataFrame, names: Sequence[str]) -> Numbers:
    """Return columns as finite numbers, or say which one is not."""
    columns(frame, names)
    for name in names:
        column = frame[name]
        if column.isna().any():
            row = int(np.flatnonzero(column.isna())[0]) + 1
            raise ValueError(
                f"The column {name!r} has {int(column.isna().sum())} missing values, the first in "
                f"row {row}; fill them in or leave the rows out"
            )
        if not is_numeric_dtype(column):
            wrong = column[pd.to_numeric(column, errors="coerce").isna()]
            raise ValueError(
                f"The column {name!r} must be numbers, but it holds {str(wrong.iloc[0])!r}"
            )
    values = frame[list(names)].to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        name = names[int(np.flatnonzero(~np.isfinite(values).all(0))[0])]
        raise ValueError(f"The column {name!r} holds a value that is not finite")
    return values


def labels(column: pd.Series[Any]) -> list[str]:
    """Return labels of any kind as class names, the same for the same labels in any file type.

    Examples
    --------
    >>> labels(pd.Series([1.0, 2.0])), labels(pd.Series([True, False]))
    (['1', '2'], ['true', 'false'])
    """
    if column.isna().any():
        raise ValueError(
            f"The label column {column.name!r} has {int(column.isna().sum())} missing values; "
            "leave the rows out"
        )
    if is_bool_dtype(column):
        return [str(value).lower() for value in column]
    if is_numeric_dtype(column):
        if (column % 1 != 0).any():
            raise ValueError(
                f"The label column {column.name!r} holds real numbers; add --regression to "
                "predict values, or give classes as whole numbers or names"
            )
        return [str(int(value)) for value in column]
    return [str(value).strip() for value in column]


def class_names(column: pd.Series[Any], given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the classes given, or those that occur: numbers by size, names by the alphabet."""
    found = set(labels(column))
    if given is None:
        names = tuple(sorted(found, key=lambda name: (not _is_number(name), _size(name), name)))
    else:
        names = tuple(given)
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(
            f"There must be at least two different classes, not {', '.join(names) or 'none'}; name "
            "classes that the first task lacks with --classes, or add --regression"
        )
    return names


def _is_number(name: str) -> bool:
    return name.removeprefix("-").isdigit()


def _size(name: str) -> int:
    return int(name) if _is_number(name) else 0
