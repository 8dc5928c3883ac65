"""The look of the gallery's pictures: that of all other figures."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import torch

from ibcl.experiments.evaluation.style import PALETTE, SETTINGS


def apply(gallery: dict[str, Any], name: str) -> None:
    """Set what every example starts from."""
    plt.rcParams.update(SETTINGS)
    plt.rcParams["axes.prop_cycle"] = plt.cycler(color=PALETTE)
    torch.manual_seed(0)
