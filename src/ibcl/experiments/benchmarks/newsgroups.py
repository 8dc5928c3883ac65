"""20 Newsgroups: five tasks, about computers (label 0) or not (label 1).

100 training texts per group are held out for validation; the test texts are the later ones by date,
as published. Headers, footers and quotes are removed, because they give the group away.

scikit-learn keeps its download as a pickle, which can run code when it is read: give a data folder
with a copy of it only if you trust where the copy comes from.

TF-IDF and the singular vectors are fitted on the first task's texts only, because the others have
not arrived. That has a price, which fitting on all tasks' training texts would hide; the frozen
``minilm`` backbone fits nothing and does not pay it.
"""

from __future__ import annotations

import numpy as np

from ibcl.experiments.benchmarks.assembly import Settings, assemble
from ibcl.experiments.benchmarks.benchmark import Benchmark
from ibcl.experiments.benchmarks.benchmark_registration import BenchmarkRegistration, register
from ibcl.experiments.benchmarks.description import BenchmarkDescription, TaskDescription
from ibcl.experiments.benchmarks.raw_tables import InMemory, Table, Tables

COMPUTERS = (
    "comp.graphics",
    "comp.os.ms-windows.misc",
    "comp.sys.ibm.pc.hardware",
    "comp.sys.mac.hardware",
    "comp.windows.x",
)
OTHERS = (
    "misc.forsale",
    "rec.autos",
    "rec.motorcycles",
    "rec.sport.baseball",
    "rec.sport.hockey",
)

DESCRIPTION = BenchmarkDescription(
    name="20news",
    text="text",
    label="group",
    validation=100,
    backbone="tfidf",
    tasks=tuple(
        TaskDescription(name=f"{computers}-vs-{other}", classes=((computers,), (other,)))
        for computers, other in zip(COMPUTERS, OTHERS, strict=True)
    ),
)


def load(settings: Settings) -> Benchmark:
    """Load 20 Newsgroups."""
    source = "scikit-learn's download" if settings.data is None else "local copy"
    tables: Tables = {"train": _table("train", settings), "test": _table("test", settings)}
    return assemble(DESCRIPTION, tables, f"20 Newsgroups by date, {source}", settings)


def _table(subset: str, settings: Settings) -> Table:
    from sklearn.datasets import fetch_20newsgroups

    try:
        bunch = fetch_20newsgroups(
            data_home=settings.data,
            subset=subset,
            categories=[*COMPUTERS, *OTHERS],
            shuffle=False,
            remove=("headers", "footers", "quotes"),
            download_if_missing=settings.data is None,
        )
    except OSError as error:
        if settings.data is None:
            raise OSError(
                f"20 Newsgroups cannot be downloaded ({error}): connect to the internet, or set "
                "IBCL_DATA to a folder with 20news-bydate_py3.pkz"
            ) from error
        raise FileNotFoundError(
            f"the data folder {settings.data} has no 20news-bydate_py3.pkz: copy it there from "
            "scikit-learn's data folder, or unset IBCL_DATA to download it"
        ) from error
    return Table({"group": np.asarray(bunch.target_names)[bunch.target]}, InMemory(bunch.data))


register(BenchmarkRegistration("20news", "20 Newsgroups", load))
