"""Networks, settings before tuning, and search spaces that several methods share."""

from __future__ import annotations

from ibcl.experiments.methods.registration import Range, Space

MLP, LINEAR = "mlp:64", "linear"
"""The paper's network, and a linear head."""

TRAINING = {"epochs": 10, "batch_size": 64}
GRADIENT = {**TRAINING, "learning_rate": 3e-3}
VARIATIONAL = {**TRAINING, "learning_rate": 2e-2, "prior_std": 2.5}

NORM: Space = {"feature_norm": (1.0, 3.0, 10.0)}
RATE: Space = {**NORM, "learning_rate": Range(3e-4, 1e-1)}
DECAYED: Space = {**RATE, "weight_decay": Range(1e-6, 1e-2)}
PRIOR: Space = {**NORM, "prior_std": Range(0.05, 10.0)}
BAYES: Space = {**RATE, "prior_std": Range(0.05, 10.0)}
SCORES: Space = {"temperature": Range(0.5, 10.0)}
