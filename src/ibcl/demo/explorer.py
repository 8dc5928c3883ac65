r"""What the page needs to make models by itself: the evidence of every task, and the test images.

In the browser a preference w is turned into a model as `ibcl.pooling` does it: precision
P₀ + K Σ w_k Λ_k, mean from one Cholesky solve against P₀μ₀ + K Σ w_k η_k.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import ibcl
from ibcl.demo.tasks import LEVELS, DigitTasks
from ibcl.networks import RandomReLUFeatures


def explorer_data(learner: ibcl.IBCL, digits: DigitTasks) -> dict[str, Any]:
    """Return everything ``explorer.js`` computes with, ready for JSON."""
    (features,) = (
        layer
        for layer in learner.network.template.children()
        if isinstance(layer, RandomReLUFeatures)
    )
    evidence = [learner.knowledge.evidence(task, 0) for task in learner.tasks]
    (prior,) = learner.knowledge.priors
    if prior.mean.any():
        raise ValueError("The page takes the prior's mean to be zero.")
    rows, columns = np.tril_indices(learner.network.dimension)
    return {
        "tasks": list(learner.tasks),
        "dimension": learner.network.dimension,
        "priorPrecision": float(prior.natural_parameters().precision[0]),
        # Lower triangles, row by row.
        "precisions": [_floats(factor.precision.numpy()[rows, columns]) for factor in evidence],
        "linears": [_floats(factor.linear.numpy()) for factor in evidence],
        "featureWeights": _floats(features.weight.numpy().T),
        "featureBiases": _floats(features.bias.numpy()),
        "centre": _floats(digits.scaling.centre),
        "scale": digits.scaling.scale,
        "levels": LEVELS,
        "images": [_bytes(task.test_pixels * LEVELS) for task in digits.tasks],
        "odd": [_bytes(task.test.y.numpy()) for task in digits.tasks],
    }


def _floats(values: ArrayLike) -> str:
    return base64.b64encode(np.asarray(values, dtype="<f4").tobytes()).decode()


def _bytes(values: ArrayLike) -> str:
    return base64.b64encode(np.rint(values).astype(np.uint8).tobytes()).decode()
