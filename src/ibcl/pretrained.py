"""Opening what `save_pretrained` wrote, from a folder or from the Hugging Face hub."""

from __future__ import annotations

from os import PathLike
from typing import Any

import torch

from ibcl.bases import NetworkSource
from ibcl.errors import StoreError
from ibcl.hub import KNOWLEDGE, MODEL, opened
from ibcl.learner import IBCL, load
from ibcl.model import Model, load_model


def from_pretrained(
    source: str | PathLike[str],
    network: NetworkSource | None = None,
    device: str | torch.device | None = None,
    **settings: Any,
) -> IBCL | Model:
    """Open what ``save_pretrained`` wrote or ``push_to_hub`` uploaded.

    Parameters
    ----------
    source
        A folder, or an id of the Hugging Face hub such as ``"somebody/movies"``.
    network
        The module it was made with, where `ibcl.networks` did not build it, or its base model
        alone; or where that is, as `ibcl.bases.base_model` takes it.
    device
        Where to compute, such as ``"cuda"``; where the network is, without one.
    settings
        ``revision``, ``token``, ``cache_dir`` and ``local_files_only``, as in ``huggingface_hub``.

    Returns
    -------
    The learner, or the model, whichever was saved.

    Examples
    --------
    >>> import tempfile, ibcl
    >>> x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    >>> learner = ibcl.IBCL(ibcl.networks.linear(2))
    >>> _ = learner.learn(x, x[:, 0] > 0, task="first")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     learner.save_pretrained(f"{folder}/movies")
    ...     ibcl.from_pretrained(f"{folder}/movies").tasks
    ('first',)
    """
    with opened(source, **settings) as folder:
        if (folder / KNOWLEDGE).is_dir():
            return load(folder / KNOWLEDGE, network, device=device)
        if (folder / MODEL).is_file():
            return load_model(folder / MODEL, network, device)
    raise StoreError(
        f"{source} holds neither {KNOWLEDGE} nor {MODEL}, so save_pretrained did not write it."
    )
