"""The built-in benchmarks, on random images in the layouts of the public data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from synthetic_data import png, texts, write_labelled_images

from ibcl.experiments import benchmarks
from ibcl.experiments.benchmarks import Benchmark, celeba, cifar100, newsgroups, tiny_imagenet
from ibcl.experiments.benchmarks.assembly import Settings, assemble
from ibcl.experiments.benchmarks.raw_tables import InMemory, Table, Tables


def assert_well_formed(benchmark: Benchmark) -> None:
    """Features float32, labels int64 in {0, 1}, equal widths, and truthful sizes."""
    for task in benchmark:
        for part, split in task.parts().items():
            assert split.x.dtype == np.float32
            assert split.y.dtype == np.int64
            assert split.x.shape == (len(split), benchmark.features)
            assert np.isfinite(split.x).all()
            assert split.classes == (0, 1)
            assert benchmark.provenance.sizes[task.name][part] == len(split)


def assert_parts_apart(benchmark: Benchmark) -> None:
    """No example of one part of any task is in another part of any task."""
    seen: dict[bytes, str] = {}
    for task in benchmark:
        for part, split in task.parts().items():
            for row in split.x:
                assert seen.setdefault(row.tobytes(), part) == part


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a data folder with the three image benchmarks."""
    folder = tmp_path_factory.mktemp("data")
    names = sorted(cifar100.ANIMALS + cifar100.OTHERS)
    sizes = {"train": 104, "test": 2}
    write_labelled_images(folder / "cifar100", "img", "fine_label", names, sizes)
    names = sorted([*tiny_imagenet.ANIMALS.values(), *tiny_imagenet.OTHERS.values()])
    sizes = {"train": 53, "valid": 2}
    write_labelled_images(folder / "tiny-imagenet", "image", "label", names, sizes)
    _write_faces(folder / "celeba")
    return folder


def _write_faces(folder: Path) -> None:
    import datasets

    folder.mkdir()
    generator = np.random.default_rng(0)
    features = datasets.Features(
        {"image": datasets.Image()}
        | {name: datasets.Value("bool") for name in (*celeba.ATTRIBUTES, "Eyeglasses")}
    )
    for split, size in {"train": 24, "valid": 20, "test": 16}.items():
        rows = {"image": [{"bytes": png(generator)} for _ in range(size)]} | {
            name: generator.permutation(np.arange(size) % 4 == 0).tolist()
            for name in features
            if name != "image"
        }
        dataset = datasets.Dataset.from_dict(rows, features=features)
        dataset.to_parquet(folder / f"{split}-00000-of-00001.parquet")


def test_cifar100(data: Path, tiny_resnet: Path) -> None:
    benchmark = benchmarks.load("cifar100", backbone=str(tiny_resnet), data=data)
    assert len(benchmark) == 10
    assert benchmark.task_names[0] == "aquarium_fish-vs-bicycle"
    assert benchmark.task_names[4] == "otter-vs-pickup_truck"
    assert benchmark.task_names[9] == "whale-vs-train"
    assert benchmark.metric == "accuracy"
    assert benchmark.provenance.sizes["seal-vs-streetcar"] == {
        "train": 8,
        "validation": 200,
        "test": 4,
    }
    assert_well_formed(benchmark)
    assert_parts_apart(benchmark)


def test_tiny_imagenet(data: Path, tiny_resnet: Path) -> None:
    benchmark = benchmarks.load("tinyimagenet", backbone=str(tiny_resnet), data=data)
    assert len(benchmark) == 10
    assert benchmark.task_names[0] == "goldfish-vs-cliff"
    assert benchmark.task_names[3] == "tailed_frog-vs-pizza"
    assert benchmark.task_names[9] == "albatross-vs-tractor"
    assert benchmark.provenance.sizes["koala-vs-water_tower"] == {
        "train": 6,
        "validation": 100,
        "test": 4,
    }
    assert_well_formed(benchmark)
    assert_parts_apart(benchmark)


def test_celeba(data: Path, tiny_resnet: Path) -> None:
    benchmark = benchmarks.load("celeba", backbone=str(tiny_resnet), data=data)
    assert benchmark.task_names == celeba.ATTRIBUTES
    assert len(benchmark) == 15
    assert (benchmark.task_names[0], benchmark.task_names[14]) == (
        "5_o_Clock_Shadow",
        "Double_Chin",
    )
    assert benchmark.metric == "balanced_accuracy"
    assert benchmark.provenance.sizes["Bald"] == {"train": 24, "validation": 20, "test": 16}
    assert_well_formed(benchmark)
    assert_parts_apart(benchmark)
    first, last = benchmark.tasks[0], benchmark.tasks[-1]
    assert first.train.x is last.train.x, "fifteen tasks on the same faces share one array"
    assert not np.array_equal(first.train.y, last.train.y)


def test_celeba_with_equal_classes(data: Path, tiny_resnet: Path) -> None:
    plain = benchmarks.load("celeba", backbone=str(tiny_resnet), data=data)
    equal = benchmarks.load("celeba-balanced", backbone=str(tiny_resnet), data=data)
    assert_well_formed(equal)
    assert_parts_apart(equal)
    for before, after in zip(plain, equal, strict=True):
        assert np.bincount(after.train.y).tolist() == [12, 12]
        for untouched in ("validation", "test"):
            np.testing.assert_array_equal(before.parts()[untouched].y, after.parts()[untouched].y)
        # Rows keep their labels: each is a row of the data as it is, with the same label.
        known = {(x.tobytes(), int(y)) for x, y in zip(before.train.x, before.train.y, strict=True)}
        drawn = {(x.tobytes(), int(y)) for x, y in zip(after.train.x, after.train.y, strict=True)}
        assert drawn <= known


def test_labels_follow_the_images(data: Path, tiny_resnet: Path) -> None:
    """Every feature row is that of an image of the class its label says."""
    import datasets

    from ibcl.experiments.benchmarks.backbones import backbone

    benchmark = benchmarks.load("cifar100", backbone=str(tiny_resnet), data=data)
    raw = datasets.load_dataset(str(data / "cifar100"), split="test", cache_dir=str(data / "hf"))
    raw = raw.cast_column("img", datasets.Image(decode=False))
    names = raw.features["fine_label"].names
    extractor = backbone(str(tiny_resnet))
    task = benchmark.tasks[2]
    for label, name in enumerate(("dolphin", "lawn_mower")):
        images = [row["img"]["bytes"] for row in raw if names[row["fine_label"]] == name]
        expected = np.sort(extractor.embed(images), axis=0)
        found = np.sort(task.test.x[task.test.y == label], axis=0)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_features_are_extracted_once_for_all_seeds(
    data: Path, tiny_resnet: Path, tmp_path: Path
) -> None:
    def load(seed: int) -> Benchmark:
        return benchmarks.load("tinyimagenet", str(tiny_resnet), data, tmp_path, seed)

    first = load(0)
    files = sorted((tmp_path / "features").glob("*.safetensors"))
    times = [file.stat().st_mtime_ns for file in files]
    other, again = load(1), load(0)
    assert sorted((tmp_path / "features").glob("*.safetensors")) == files
    assert [file.stat().st_mtime_ns for file in files] == times
    assert again.provenance == first.provenance
    assert other.provenance.sha256 != first.provenance.sha256
    np.testing.assert_array_equal(again.tasks[3].train.x, first.tasks[3].train.x)
    np.testing.assert_array_equal(other.tasks[3].test.x, first.tasks[3].test.x)


def test_damaged_features_are_extracted_again(
    data: Path, tiny_resnet: Path, tmp_path: Path
) -> None:
    intact = benchmarks.load("celeba", str(tiny_resnet), data, tmp_path)
    for file in (tmp_path / "features").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:50])
    with pytest.warns(benchmarks.DamagedCacheWarning):
        again = benchmarks.load("celeba", str(tiny_resnet), data, tmp_path)
    assert again.provenance.sha256 == intact.provenance.sha256


def test_wide_features_are_projected(data: Path, tiny_resnet: Path) -> None:
    whole = benchmarks.load("celeba", str(tiny_resnet), data, dimension=None)
    narrow = benchmarks.load("celeba", str(tiny_resnet), data, dimension=4)
    assert (whole.features, narrow.features) == (10, 4)
    assert narrow.provenance.settings["projection"] == [10, 4]
    x, z = whole.tasks[0].test.x, narrow.tasks[0].test.x
    solution, *_ = np.linalg.lstsq(x, z, rcond=None)
    np.testing.assert_allclose(x @ solution, z, atol=1e-4)


def _news(tmp_path: Path, later: int = 0) -> Benchmark:
    """20 Newsgroups with random texts; ``later`` changes the texts of all tasks but the first."""
    groups = [*newsgroups.COMPUTERS, *newsgroups.OTHERS]
    first = {newsgroups.COMPUTERS[0], newsgroups.OTHERS[0]}

    def table(size: int, offset: int) -> Table:
        items = [
            text
            for number, group in enumerate(groups)
            for text in texts(offset + number + (0 if group in first else later), size)
        ]
        return Table({"group": np.repeat(groups, size)}, InMemory(items))

    tables: Tables = {"train": table(130, 0), "test": table(12, 1000)}
    settings = Settings(None, None, tmp_path, 0, 512)
    return assemble(newsgroups.DESCRIPTION, tables, "random texts", settings)


def test_20news(tmp_path: Path) -> None:
    benchmark = _news(tmp_path)
    assert len(benchmark) == 5
    assert benchmark.task_names[0] == "comp.graphics-vs-misc.forsale"
    assert benchmark.task_names[4] == "comp.windows.x-vs-rec.sport.hockey"
    assert benchmark.provenance.backbone == "tfidf"
    assert set(map(str, benchmark.provenance.sizes.values())) == {
        "{'train': 60, 'validation': 200, 'test': 24}"
    }
    assert_well_formed(benchmark)


def test_first_tasks_features_ignore_later_texts(tmp_path: Path) -> None:
    now, otherwise = _news(tmp_path), _news(tmp_path, later=50)
    for part, split in now.tasks[0].parts().items():
        np.testing.assert_array_equal(split.x, otherwise.tasks[0].parts()[part].x)
    assert not np.array_equal(now.tasks[1].train.x, otherwise.tasks[1].train.x)


def test_digits() -> None:
    benchmark = benchmarks.load("digits")
    assert benchmark.task_names == ("0-vs-1", "2-vs-3", "4-vs-5", "6-vs-7", "8-vs-9")
    assert_well_formed(benchmark)
    assert_parts_apart(benchmark)
    everything = np.concatenate([s.x for task in benchmark for s in task.parts().values()])
    assert everything.shape == (1797, 64)
    assert (everything.min(), everything.max()) == (0, 1)


def test_digits_are_labelled_odd_or_even() -> None:
    from sklearn.datasets import load_digits

    pixels, digit = load_digits(return_X_y=True)
    known = {(x / 16).astype(np.float32).tobytes(): y for x, y in zip(pixels, digit, strict=True)}
    for number, task in enumerate(benchmarks.load("digits")):
        for split in task.parts().values():
            for x, y in zip(split.x, split.y, strict=True):
                assert known[x.tobytes()] == 2 * number + y


def test_digits_by_seed() -> None:
    first, again, other = (benchmarks.load("digits", seed=seed) for seed in (5, 5, 6))
    assert first.provenance == again.provenance
    assert first.provenance.sha256 != other.provenance.sha256


def test_rows_of_no_task_change_nothing(tmp_path: Path) -> None:
    """A copy with the needed classes only gives the same benchmark as the full data."""

    def load(groups: list[str]) -> Benchmark:
        items = [f"{text} {group}" for group in groups for text in texts(3, 130)]
        table = Table({"group": np.repeat(groups, 130)}, InMemory(items))
        settings = Settings(None, None, tmp_path, 0, 512)
        return assemble(newsgroups.DESCRIPTION, {"train": table, "test": table}, "x", settings)

    needed = sorted([*newsgroups.COMPUTERS, *newsgroups.OTHERS])
    full = sorted([*needed, "alt.atheism", "sci.med"])
    assert load(needed).provenance == load(full).provenance


class TestClearSentences:
    def test_unknown_benchmark(self) -> None:
        with pytest.raises(
            ValueError, match=r"unknown benchmark 'mnist': use one of 20news, cifar"
        ):
            benchmarks.load("mnist")

    def test_missing_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(FileNotFoundError, match=r"data folder .*nowhere does not exist"):
            benchmarks.load("cifar100", data=tmp_path / "nowhere")
        monkeypatch.setenv("IBCL_DATA", str(tmp_path / "nowhere"))
        with pytest.raises(FileNotFoundError, match="IBCL_DATA"):
            benchmarks.load("cifar100")

    @pytest.mark.parametrize(
        ("name", "copy"),
        [
            ("cifar100", "cifar100/"),
            ("tinyimagenet", "tiny-imagenet/"),
            ("celeba", "celeba/"),
            ("20news", "20news-bydate_py3.pkz"),
        ],
    )
    def test_data_not_in_folder(self, tmp_path: Path, name: str, copy: str) -> None:
        with pytest.raises(FileNotFoundError, match=f"has no {copy}"):
            benchmarks.load(name, data=tmp_path)

    def test_missing_class(self, tmp_path: Path, tiny_resnet: Path) -> None:
        names = [name for name in cifar100.ANIMALS + cifar100.OTHERS if name != "rocket"]
        folder = tmp_path / "cifar100"
        write_labelled_images(folder, "img", "fine_label", names, {"train": 2, "test": 1})
        with pytest.raises(ValueError, match="class 'rocket' of task 'ray-vs-rocket' is not in"):
            benchmarks.load("cifar100", str(tiny_resnet), tmp_path)

    def test_missing_split(self, tmp_path: Path, tiny_resnet: Path) -> None:
        names = cifar100.ANIMALS + cifar100.OTHERS
        write_labelled_images(tmp_path / "cifar100", "img", "fine_label", names, {"train": 2})
        with pytest.raises(ValueError, match="has no split test, only train"):
            benchmarks.load("cifar100", str(tiny_resnet), tmp_path)

    def test_missing_column(self, tmp_path: Path, tiny_resnet: Path) -> None:
        names = cifar100.ANIMALS + cifar100.OTHERS
        sizes = {"train": 2, "test": 1}
        write_labelled_images(tmp_path / "cifar100", "img", "label", names, sizes)
        with pytest.raises(ValueError, match="has no column 'fine_label', only img, label"):
            benchmarks.load("cifar100", str(tiny_resnet), tmp_path)

    def test_not_a_dataset(self, tmp_path: Path) -> None:
        (tmp_path / "cifar100").mkdir()
        (tmp_path / "cifar100" / "train-00000-of-00001.parquet").write_text("nonsense")
        with pytest.raises(ValueError, match="cannot be read as a dataset"):
            benchmarks.load("cifar100", data=tmp_path)

    def test_hub_out_of_reach(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import datasets

        def offline(*_: object, **__: object) -> None:
            raise ConnectionError("Couldn't reach the Hub")

        monkeypatch.setattr(datasets, "load_dataset", offline)
        with pytest.raises(OSError, match=r"uoft-cs/cifar100 cannot be loaded .* set IBCL_DATA"):
            benchmarks.load("cifar100")

    def test_backbone_for_other_inputs(self, data: Path) -> None:
        with pytest.raises(
            ValueError, match="tfidf reads texts, but the inputs of cifar100 are im"
        ):
            benchmarks.load("cifar100", "tfidf", data)

    def test_backbone_where_none_is_needed(self) -> None:
        with pytest.raises(ValueError, match="digits holds numbers already and takes no backbone"):
            benchmarks.load("digits", backbone="resnet18")

    def test_bad_dimension(self) -> None:
        with pytest.raises(ValueError, match="dimension must be a positive number"):
            benchmarks.load("digits", dimension=0)
