"""A user's own tasks, described in YAML."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from synthetic_data import png, texts

from ibcl.experiments import benchmarks
from ibcl.experiments.benchmarks.description import BenchmarkDescription, read_description


def write(folder: Path, content: dict[str, Any] | str) -> Path:
    """Write a description."""
    path = folder / "own.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def table(size: int = 40, seed: int = 0) -> pd.DataFrame:
    """Make a table with numbers, texts, two kinds of labels and a genre."""
    generator = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "a": generator.standard_normal(size),
            "b": np.arange(size),
            "review": texts(seed, size),
            "verdict": np.resize(["bad", "good", "awful", "good"], size),
            "robots": generator.permutation(np.arange(size) % 2 == 0),
            "genre": np.repeat(["sci-fi", "documentary"], size // 2),
        }
    )


NUMBERS: dict[str, Any] = {
    "name": "films",
    "files": "films.csv",
    "numbers": ["a", "b"],
    "label": "verdict",
    "tasks": [
        {
            "name": "sci-fi",
            "where": {"genre": "sci-fi"},
            "classes": [["bad", "awful"], "good"],
        },
        {"name": "documentary", "where": {"genre": ["documentary"]}, "classes": ["bad", "good"]},
        {"name": "has-robots", "label": "robots"},
    ],
}


def changed(**values: Any) -> dict[str, Any]:
    """Return the description above with some fields changed, or left out if ``None``."""
    merged = {**NUMBERS, **values}
    return {key: value for key, value in merged.items() if value is not None}


def test_numbers_from_csv(tmp_path: Path) -> None:
    frame = table()
    frame.to_csv(tmp_path / "films.csv", index=False)
    benchmark = benchmarks.load(write(tmp_path, NUMBERS))
    assert benchmark.name == "films"
    assert benchmark.task_names == ("sci-fi", "documentary", "has-robots")
    assert benchmark.provenance.backbone == "none"
    expected = {"sci-fi": 20, "documentary": 15, "has-robots": 40}
    for task in benchmark:
        assert sum(benchmark.provenance.sizes[task.name].values()) == expected[task.name]
        for split in task.parts().values():
            rows = frame.iloc[split.x[:, 1].astype(int)]
            np.testing.assert_allclose(split.x[:, 0], rows["a"], rtol=1e-6)
            labels = rows["robots"] if task.name == "has-robots" else rows["verdict"] == "good"
            np.testing.assert_array_equal(split.y, labels)


def test_no_row_is_trained_on_and_tested_on(tmp_path: Path) -> None:
    table(200).to_csv(tmp_path / "films.csv", index=False)
    for seed in range(5):
        benchmark = benchmarks.load(str(write(tmp_path, NUMBERS)), seed=seed)
        rows = {
            part: {int(b) for task in benchmark for b in task.parts()[part].x[:, 1]}
            for part in ("train", "validation", "test")
        }
        assert len(set.union(*rows.values())) == sum(map(len, rows.values()))


def test_texts_from_parquet_with_a_file_for_each_part(tmp_path: Path) -> None:
    for seed, part in enumerate(("train", "validation", "test")):
        table(40 + 20 * seed, seed).to_parquet(tmp_path / f"{part}.parquet")
    files = {part: f"{part}.parquet" for part in ("train", "validation", "test")}
    description = changed(
        files=files, numbers=None, text="review", tasks=[{"name": "t", "label": "robots"}]
    )
    benchmark = benchmarks.load(write(tmp_path, description))
    assert benchmark.provenance.backbone == "tfidf"
    assert benchmark.provenance.sizes == {"t": {"train": 40, "validation": 60, "test": 80}}


def test_images_in_parquet(tmp_path: Path, tiny_resnet: Path) -> None:
    generator = np.random.default_rng(0)
    images = [png(generator) for _ in range(24)]
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "last.png").write_bytes(images[-1])
    forms: list[Any] = [{"bytes": image, "path": None} for image in images[:-1]]
    forms.append({"bytes": None, "path": "pictures/last.png"})
    pd.DataFrame({"picture": forms, "y": [0, 1] * 12}).to_parquet(tmp_path / "p.parquet")
    description = {
        "name": "pictures",
        "files": "p.parquet",
        "image": "picture",
        "label": "y",
        "backbone": str(tiny_resnet),
        "tasks": [{"name": "only"}],
    }
    benchmark = benchmarks.load(write(tmp_path, description))
    assert benchmark.features == 10
    assert sum(benchmark.provenance.sizes["only"].values()) == 24


def test_hub_dataset_from_its_local_copy(tmp_path: Path) -> None:
    copy = tmp_path / "data" / "films"
    copy.mkdir(parents=True)
    table(40).to_parquet(copy / "train-00000-of-00001.parquet")
    table(20, 1).to_parquet(copy / "test-00000-of-00001.parquet")
    description = changed(files=None, hub="someone/films", validation=2)
    benchmark = benchmarks.load(write(tmp_path, description), data=tmp_path / "data")
    sizes = benchmark.provenance.sizes["documentary"]
    assert sizes == {"train": 11, "validation": 4, "test": 7}
    texts_too = changed(files=None, hub="someone/films", numbers=None, text="review")
    assert benchmarks.load(write(tmp_path, texts_too), data=tmp_path / "data").features > 1


def test_the_documented_example_is_valid(tmp_path: Path) -> None:
    documentation = benchmarks.__doc__ or ""
    first, second = re.findall(r"\.\. code-block:: yaml\n\n((?:    .*\n|\n)+)", documentation)
    own = read_description(write(tmp_path, textwrap.dedent(first)))
    assert (own.validation, own.test, own.metric) == (0.2, 100, "balanced_accuracy")
    assert own.tasks[1].classes == (("bad", "awful"), ("good",))
    hub = {**yaml.safe_load(first), **yaml.safe_load(second)}
    del hub["files"]
    described = BenchmarkDescription.model_validate(hub)
    assert described.splits == {"train": ("train",), "test": ("test", "validation")}


@pytest.mark.parametrize(
    ("description", "complaint"),
    [
        (changed(tasks=[]), "tasks: .*at least 1"),
        (changed(name=None), "name: Field required"),
        (changed(colour="red"), "colour: Extra inputs are not permitted"),
        (changed(numbers=None), "give exactly one of text, image and numbers"),
        (changed(text="review"), "give exactly one of text, image and numbers"),
        (changed(hub="someone/films"), "give either files or hub, not both"),
        (changed(label=None), "task 'sci-fi' has no label column"),
        (changed(validation=1.5), "validation"),
        (changed(test=0), "test"),
        (changed(metric="f1"), "metric: Input should be 'accuracy' or 'balanced_accuracy'"),
        (changed(backbone="tfidf"), "numbers need no backbone"),
        (changed(files={"test": "a.csv"}), "at least the train file"),
        (changed(tasks=[{"name": "t"}, {"name": "t"}]), "'t' occurs more than once"),
        (changed(tasks=[{"name": "t", "classes": ["a"]}]), r"tasks\.0\.classes: .*at least 2"),
        (changed(tasks=[{"name": "t", "classes": ["a", "a"]}]), "lists the same class twice"),
        (changed(files=None), "says nothing about where the data is"),
        ("name: [", "is not readable as YAML"),
        ("- just\n- a list", "must hold a mapping"),
    ],
)
def test_bad_description(tmp_path: Path, description: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        benchmarks.load(write(tmp_path, description))
    assert "\n" not in str(caught.value)
    assert "own.yaml" in str(caught.value)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no benchmark description .*none\.yaml"):
        benchmarks.load(tmp_path / "none.yaml")
    with pytest.raises(FileNotFoundError, match=r"no data file .*films\.csv"):
        benchmarks.load(write(tmp_path, NUMBERS))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"numbers": ["a", "z"]}, "has no column 'z', only a, b, review"),
        ({"label": "stars"}, "has no column 'stars'"),
        ({"numbers": ["a", "genre"]}, "must hold numbers"),
        ({"validation": 30}, "too few to hold out"),
        ({"tasks": [{"name": "t", "classes": ["good", "great"]}]}, "class 'great' of task 't'"),
        ({"tasks": [{"name": "t"}]}, "list the classes of the task"),
        ({"tasks": [{"name": "t", "label": "ones"}]}, "expected rows of at least two classes"),
    ],
)
def test_description_that_does_not_fit_the_data(
    tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    table().assign(ones=1).to_csv(tmp_path / "films.csv", index=False)
    with pytest.raises(ValueError, match=complaint):
        benchmarks.load(write(tmp_path, changed(**change)))


def test_missing_numbers(tmp_path: Path) -> None:
    table().assign(a=[np.nan, *range(39)]).to_csv(tmp_path / "films.csv", index=False)
    with pytest.raises(ValueError, match="missing or infinite values"):
        benchmarks.load(write(tmp_path, NUMBERS))


@pytest.mark.parametrize("name", ["films.txt", "films.parquet"])
def test_unreadable_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("nonsense")
    with pytest.raises(ValueError, match=r"cannot be read|neither \.parquet nor \.csv"):
        benchmarks.load(write(tmp_path, changed(files=name)))
