"""Small synthetic copies of the public data, in the same layouts."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

WORDS = ("window", "mouse", "disk", "engine", "wheel", "pitcher", "goal", "price", "driver", "card")


def png(generator: np.random.Generator, size: int = 8) -> bytes:
    """Encode a random image."""
    from PIL import Image

    pixels = generator.integers(0, 256, (size, size, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png")
    return buffer.getvalue()


def write_labelled_images(
    folder: Path, image: str, label: str, names: Sequence[str], sizes: dict[str, int], seed: int = 0
) -> None:
    """Write a dataset of random images, ``sizes[split]`` of each class, as Parquet files."""
    import datasets

    generator = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    features = datasets.Features(
        {image: datasets.Image(), label: datasets.ClassLabel(names=[*names, "unused"])}
    )
    for split, size in sizes.items():
        labels = generator.permutation(np.repeat(np.arange(len(names) + 1), size)).tolist()
        rows = {image: [{"bytes": png(generator)} for _ in labels], label: labels}
        dataset = datasets.Dataset.from_dict(rows, features=features)
        dataset.to_parquet(folder / f"{split}-00000-of-00001.parquet")


def texts(seed: int, count: int = 30) -> list[str]:
    """Write random texts of a few words."""
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, 12)) for _ in range(count)]
