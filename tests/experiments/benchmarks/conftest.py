"""Fixtures of the benchmarks' tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("IBCL_DATA", raising=False)
    monkeypatch.setenv("IBCL_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def tiny_resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a randomly initialised ResNet of the paper's class, with its image processor."""
    import torch
    from transformers import ResNetConfig, ResNetModel

    folder = tmp_path_factory.mktemp("tiny-resnet")
    torch.manual_seed(0)
    config = ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 6, 8, 10], depths=[1, 1, 1, 1], layer_type="basic"
    )
    ResNetModel(config).save_pretrained(folder)
    processor = {
        "image_processor_type": "ConvNextImageProcessor",
        "crop_pct": 0.875,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
        "resample": 3,
        "rescale_factor": 1 / 255,
        "size": {"shortest_edge": 16},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder
