"""Adapters of a learner, in and out: what was trained elsewhere, and what others can run."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from ibcl.adapters.adapter import Adapter
from ibcl.adapters.averaging import averaged
from ibcl.adapters.folders import read_folder, write_folder
from ibcl.adapters.training import probe, targets
from ibcl.experts import ExpertPart
from ibcl.likelihoods import LIKELIHOODS
from ibcl.networks import FlatNetwork
from ibcl.preference import Preference
from ibcl.state import State
from ibcl.tasks import TaskData


def bringing(state: State, folder: str | PathLike[str], x: Any) -> tuple[Adapter, Tensor]:
    """Read an adapter for a learner, and what it answers to inputs of its task.

    Returns
    -------
    The adapter, and the class of each input; zeros where the adapter has no head.
    """
    network = state.network
    if network.backbone is None or not network.backbone.carries_inputs:
        raise ValueError(
            "Adapters stand behind a base model: make the learner with "
            "ibcl.IBCL(base, expert=ibcl.adapters.LoRA())."
        )
    if network.has_open_layers and not state.learnt:
        raise ValueError(
            "Layers left open are chosen on labelled rows: name them in "
            "ibcl.networks.with_backbone, or learn a task before adapters are added."
        )
    features = state.features(x)
    outputs = network.head.output_count(features)
    classification = _classifies(state)
    columns = max(2, outputs) if classification else outputs
    adapter = read_folder(folder, columns, classification, network.backbone)
    try:
        labels = _labels(adapter, network, features)
    except ValueError as error:
        said = str(error).rstrip(".")
        raise ValueError(f"The adapter in {folder} cannot be taken: {said}.") from None
    return adapter, labels


def _classifies(state: State) -> bool:
    """Whether answers are classes: as tasks before say, or the user; classes where neither does."""
    if state.learnt:
        return state.likelihood.classification
    given = state.given.likelihood
    if isinstance(given, str):
        return given not in LIKELIHOODS or LIKELIHOODS[given].classification
    return given.classification


def with_head(adapter: Adapter, state: State, data: TaskData) -> Adapter:
    """Give an adapter that has no head one: a linear probe of what the adapted base returns.

    Parameters
    ----------
    data
        φ of the task's inputs with what it carries, and their labels.
    """
    likelihood, network = state.likelihood_of_noise(None), state.network
    seen, y = targets(data.y, likelihood.classification)
    if adapter.answering != "nothing" or (seen is not None and len(seen) < 2):
        return adapter
    features = adapter.on(network).features(data.x)
    head = probe(features, y, data.weights, likelihood.classification)
    columns = likelihood.columns(network.head.output_count(data.x))
    kept = head.weight.detach().cpu(), head.bias.detach().cpu()
    return replace(
        adapter, head=kept, classes=None if seen is None else seen.cpu(), columns=columns
    )


def _labels(adapter: Adapter, network: FlatNetwork, features: Tensor) -> Tensor:
    fitted = adapter.on(network)
    _ = fitted.adapted
    if adapter.answering == "nothing":
        return torch.zeros(len(features), dtype=torch.long)
    if adapter.head is not None and adapter.head[0].shape[1] != network.columns:
        raise ValueError(
            f"its head reads {adapter.head[0].shape[1]} features, the learner's network gives "
            f"{network.columns}"
        )
    found = fitted.outputs(features[:1])
    if adapter.head is None and found.shape[1] != adapter.columns:
        raise ValueError(
            f"the base model's classification layer has {found.shape[1]} classes, the learner "
            f"{adapter.columns}"
        )
    answers = fitted.answers(features)
    return answers if adapter.classes is None else answers.argmax(1)


def export(
    state: State, preference: Preference, folder: str | PathLike[str], base_model: str | None
) -> None:
    """Write the adapter of a preference: a task's own, or the average of several."""
    chosen = {name: weight for name, weight in preference.items() if weight > 0}
    adapters = []
    for task, parts in zip(state.tasks, state.knowledge.parts, strict=True):
        part = parts.get(ExpertPart.kind)
        if task not in chosen:
            continue
        if not isinstance(part, ExpertPart) or not isinstance(part.fitted, Adapter):
            raise ValueError(f"Task {task!r} has no adapter to export.")
        adapters.append(part.fitted)
    weights = [chosen[task] for task in state.tasks if task in chosen]
    if base_model is None:
        backbone = state.network.backbone
        config = getattr(None if backbone is None else backbone.backbone, "config", None)
        base_model = getattr(config, "_name_or_path", None) or None
    adapter = averaged(adapters, weights)
    write_folder(adapter, folder, base_model, _card(chosen), state.network.backbone)


def _card(weights: dict[str, float]) -> str:
    if len(weights) == 1:
        return f"# Adapter of the task {next(iter(weights))}\n"
    lines = "".join(f"- {name}: {weight:g}\n" for name, weight in weights.items())
    return (
        "# Average of adapters\n\nA merge of the adapters of these tasks, weighted as a preference "
        "says. One set of weights for all inputs scores below the adapters behind their gate.\n\n"
        + lines
    )
