"""Variational inference (Algorithm 1, line 5): from priors and a task's data to posteriors.

An inference method is any object with the one method of `Inference`; to add one, write a file
beside these and add its line to `METHODS`.
"""

from ibcl.inference.dense import DenseVI
from ibcl.inference.mean_field import MeanFieldVI
from ibcl.inference.one_vs_rest import OneVsRestVI
from ibcl.inference.protocol import Inference, InferenceResult, Progress, ProgressCallback
from ibcl.inference.reparametrisation import sampled_linear

METHODS: dict[str, type[Inference]] = {
    "dense": DenseVI,
    "mean_field": MeanFieldVI,
    "one_vs_rest": OneVsRestVI,
}

__all__ = [
    "METHODS",
    "DenseVI",
    "Inference",
    "InferenceResult",
    "MeanFieldVI",
    "OneVsRestVI",
    "Progress",
    "ProgressCallback",
    "sampled_linear",
]
