"""The description of a benchmark: which data, which column is what, which tasks in which order.

The built-in benchmarks and a user's YAML file are the same thing: a `BenchmarkDescription`.
The format is explained in `ibcl.experiments.benchmarks`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from ibcl.experiments.benchmarks.benchmark import Metric, Part

Value = bool | int | float | str


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


Values = Annotated[tuple[Value, ...], BeforeValidator(_as_list), Field(min_length=1)]
Names = Annotated[tuple[str, ...], BeforeValidator(_as_list), Field(min_length=1)]
HeldOut = Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskDescription(_Strict):
    """One task: which rows, and which label.

    Attributes
    ----------
    name
        Name of the task.
    label
        Column with the label; the benchmark's ``label`` if not given.
    classes
        Values of the label column, in the order of the labels 0, 1, ...: one value each, or a list
        of values that share a label. Rows with other values are not part of the task. Without
        ``classes`` the column must hold 0, 1, ... or true and false.
    where
        Only rows in which these columns have these values.
    """

    name: str = Field(min_length=1)
    label: str | None = None
    classes: tuple[Values, ...] | None = Field(default=None, min_length=2)
    where: dict[str, Values] = {}


class BenchmarkDescription(_Strict):
    """A benchmark: the data, its columns, its tasks in order of arrival.

    Attributes
    ----------
    name
        Name of the benchmark.
    files
        A Parquet or CSV file, or one for each part (``train``, ``validation``, ``test``).
    hub
        Instead of files: the id of a Hugging Face dataset.
    config
        Configuration of that dataset, if it has several.
    splits
        Which split of that dataset serves as which part; several names are tried in order.
    text, image, numbers
        Exactly one of them: the column with the texts, the column with the images, or the list of
        columns with the features themselves.
    label
        Column with the labels, for tasks that do not name their own.
    validation, test
        What to hold out of the training rows if there is no such part: a fraction of each class, or
        a whole number of rows of each class.
    backbone
        Feature extractor to use if none is asked for.
    metric
        The metric to prefer.
    balance
        Whether every task's training rows are redrawn with equal classes, at the same number.
    tasks
        Tasks in order of arrival.
    """

    name: str = Field(min_length=1)
    files: str | dict[Part, str] | None = None
    hub: str | None = None
    config: str | None = None
    splits: dict[Part, Names] | None = None
    text: str | None = None
    image: str | None = None
    numbers: tuple[str, ...] | None = Field(default=None, min_length=1)
    label: str | None = None
    validation: HeldOut = 0.2
    test: HeldOut = 0.2
    backbone: str | None = None
    metric: Metric = "accuracy"
    balance: bool = False
    tasks: tuple[TaskDescription, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> BenchmarkDescription:
        if self.files is not None and self.hub is not None:
            raise ValueError("give either files or hub, not both")
        if isinstance(self.files, dict) and "train" not in self.files:
            raise ValueError("files must name at least the train file")
        if self.splits is not None and "train" not in self.splits:
            raise ValueError("splits must name at least the train split")
        if sum(kind is not None for kind in (self.text, self.image, self.numbers)) != 1:
            raise ValueError("give exactly one of text, image and numbers")
        if self.numbers is not None and self.backbone is not None:
            raise ValueError("numbers need no backbone: they are the features")
        names = [task.name for task in self.tasks]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"task names must differ, but {repeated[0]!r} occurs more than once")
        for task in self.tasks:
            if task.label is None and self.label is None:
                raise ValueError(f"task {task.name!r} has no label column: give label")
            classes = [str(value) for values in task.classes or () for value in values]
            if len(set(classes)) < len(classes):
                raise ValueError(f"task {task.name!r} lists the same class twice")
        return self

    def label_of(self, task: TaskDescription) -> str:
        """Return the column with the labels of a task."""
        column = task.label or self.label
        assert column is not None  # checked on construction
        return column

    def columns(self) -> tuple[str, ...]:
        """Return every column the tasks look at, besides the inputs."""
        names = {self.label_of(task): None for task in self.tasks}
        names.update({column: None for task in self.tasks for column in task.where})
        return tuple(names)


def read_description(path: Path) -> BenchmarkDescription:
    """Read a benchmark's description from a YAML file."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no benchmark description {path}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problem = " ".join(str(error).split())
        raise ValueError(f"{path} is not readable as YAML: {problem}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a mapping with name, label and tasks, see the docs")
    try:
        return BenchmarkDescription.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the description"
        message = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{path}: {where}: {message}") from None
