r"""Benchmarks: real data in, tasks out.

Each benchmark is a sequence of tasks over one input and one label space, with train, validation and
test examples kept apart and with features already extracted:

>>> from ibcl.experiments import benchmarks
>>> digits = benchmarks.load("digits")
>>> digits.task_names
('0-vs-1', '2-vs-3', '4-vs-5', '6-vs-7', '8-vs-9')
>>> digits.tasks[0].train.x.shape, digits.tasks[0].train.x.dtype
((216, 64), dtype('float32'))

================ ===== ======================================== =====================
name             tasks question                                 public source
================ ===== ======================================== =====================
``20news``       5     about computers, or not                  scikit-learn
``cifar100``     10    an animal, or not                        uoft-cs/cifar100
``tinyimagenet`` 10    an animal, or not                        zh-plus/tiny-imagenet
``celeba``       15    with or without an attribute of the face flwrlabs/celeba
``digits``       5     even or odd                              inside scikit-learn
================ ===== ======================================== =====================

``celeba-balanced`` is CelebA with training data redrawn so that the classes of a task are equally
frequent. Where tasks disagree, so that a preference pays: ``cifar100-similar`` and
``tinyimagenet-similar`` set similar classes against each other, ``celeba-contradicting`` has pairs
of attributes that exclude each other.

Data comes from the public source, or from a folder with copies (``data=`` or ``IBCL_DATA``): one
folder for each dataset in the layout of the hub, named after the last part of its hub id, and
``20news-bydate_py3.pkz`` for 20 Newsgroups. Features are extracted once and kept by content
(``cache=`` or ``IBCL_CACHE``).

Your own tasks
--------------
Describe them in a YAML file and give its path to `load`:

.. code-block:: yaml

    name: films
    files: films.parquet        # .parquet or .csv, relative to this file; or one for each part:
                                #   files: {train: a.csv, validation: b.csv, test: c.csv}
    text: review                # the column with the texts; or `image: column`; or, for columns
                                # that are features already, `numbers: [column, column, ...]`
    label: verdict              # the column with the labels
    validation: 0.2             # held out if there is no such part: a fraction of each class,
    test: 100                   # or a number of rows of each class (default 0.2)
    backbone: minilm            # default: tfidf for texts, resnet18 for images
    metric: balanced_accuracy   # default: accuracy
    balance: true               # redraw the training rows with equal classes; default: false
    tasks:                      # in order of arrival
      - name: sci-fi
        where: {genre: sci-fi}          # only these rows; a list allows several values
        classes: [bad, good]            # labels 0 and 1; a list of values shares a label
      - name: documentary
        where: {genre: [documentary, history]}
        classes: [[bad, awful], good]
      - name: has-robots
        label: robots                   # a column of true and false, or of 0 and 1

Instead of files, any dataset of the Hugging Face hub:

.. code-block:: yaml

    hub: owner/dataset
    config: en                          # if it has several
    splits: {train: train, test: [test, validation]}    # default: the usual names

A row that several tasks share is held out in all of them or in none, so no task trains on what
another is tested on.

A new benchmark is one new file with a ``load(settings)`` function that registers it, and the file's
name in `MODULES`; a new backbone is one function in `ibcl.experiments.benchmarks.backbones`.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

from ibcl.experiments.benchmarks.assembly import Settings, assemble
from ibcl.experiments.benchmarks.backbones import Backbone
from ibcl.experiments.benchmarks.benchmark import (
    Benchmark,
    BenchmarkTask,
    Metric,
    Part,
    Provenance,
    Split,
)
from ibcl.experiments.benchmarks.benchmark_registration import (
    BENCHMARKS,
    BenchmarkRegistration,
    register,
)
from ibcl.experiments.benchmarks.cache import DamagedCacheWarning, default_folder
from ibcl.experiments.benchmarks.description import (
    BenchmarkDescription,
    TaskDescription,
    read_description,
)
from ibcl.experiments.benchmarks.raw_tables import data_folder, read_dataset, read_files

__all__ = [
    "BENCHMARKS",
    "MODULES",
    "Benchmark",
    "BenchmarkDescription",
    "BenchmarkRegistration",
    "BenchmarkTask",
    "DamagedCacheWarning",
    "Metric",
    "Part",
    "Provenance",
    "Settings",
    "Split",
    "TaskDescription",
    "load",
    "register",
    "registered",
]

MODULES = (
    "newsgroups",
    "cifar100",
    "tiny_imagenet",
    "celeba",
    "digits",
    "cifar100_similar_pairs",
    "tiny_imagenet_similar_pairs",
    "celeba_contradicting",
)
"""Files that register benchmarks, in the order in which tables list them."""

for _module in MODULES:
    import_module(f"{__name__}.{_module}")


def registered(name: str | os.PathLike[str]) -> BenchmarkRegistration:
    """Return a benchmark's registration; a YAML description makes its own.

    Examples
    --------
    >>> registered("digits").backbone, registered("cifar100").backbone
    (False, True)
    """
    if isinstance(name, str) and name in BENCHMARKS:
        return BENCHMARKS[name]
    path = Path(name)
    if path.suffix not in {".yaml", ".yml"}:
        raise ValueError(
            f"unknown benchmark {os.fspath(name)!r}: use one of {', '.join(BENCHMARKS)}, or the "
            "path of a YAML description"
        )
    description = read_description(path)
    return BenchmarkRegistration(
        description.name,
        description.name,
        lambda settings: _load_description(path, settings),
        backbone=description.numbers is None,
    )


def load(
    name: str | os.PathLike[str],
    backbone: str | Backbone | None = None,
    data: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    seed: int = 0,
    dimension: int | None = 512,
) -> Benchmark:
    """Load a benchmark: its tasks in order of arrival, as features and labels.

    Parameters
    ----------
    name
        Name of a benchmark, or path of a YAML description of your own.
    backbone
        Feature extractor: a name of `ibcl.experiments.benchmarks.backbones`, a hub id or a folder;
        or a `Backbone` of your own.
        Default: the benchmark's own, which is the paper's.
    data
        Folder with copies of the data. Default: ``IBCL_DATA``, or else the public source.
    cache
        Folder for extracted features. Default: ``IBCL_CACHE``, or else the user's cache folder.
    seed
        Seed of what is held out of the training data for validation (and testing).
    dimension
        Wider features are brought to this width by a fixed random orthogonal projection, which fits
        nothing; ``None`` keeps them as they are. 512 is the paper's width.

    Examples
    --------
    >>> load("digits", seed=1).provenance.sizes["0-vs-1"]
    {'train': 216, 'validation': 72, 'test': 72}
    >>> load("digit")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: unknown benchmark 'digit': use one of 20news, ..., or the path of a YAML description
    """
    if dimension is not None and dimension < 1:
        raise ValueError(f"dimension must be a positive number of features, but got {dimension}")
    settings = Settings(
        backbone=backbone,
        data=data_folder(data),
        cache=Path(cache).expanduser() if cache else default_folder(),
        seed=seed,
        dimension=dimension,
    )
    return registered(name).load(settings)


def _load_description(path: Path, settings: Settings) -> Benchmark:
    description = read_description(path)
    if description.files is not None:
        tables, source = read_files(description, path.parent)
    elif description.hub is not None:
        tables, source = read_dataset(description, settings.data, settings.cache)
    else:
        raise ValueError(f"{path} says nothing about where the data is: give files or hub")
    return assemble(description, tables, source, settings)
