"""Methods: one file each, reading like its paper, all behind one interface.

IBCL's own variants stand behind it too (`ibcl.experiments.methods.ibcl_variants`). A new method is
a file here that registers it, and the file's name in `MODULES`.

Examples
--------
>>> import torch
>>> from ibcl import networks
>>> from ibcl.experiments import methods
>>> from ibcl.tasks import as_task
>>> gem = methods.create("gem", networks.linear(2), memory=50, epochs=2)
>>> gem.learn("first", as_task(torch.eye(2), [0, 1]), None, [[1.0]])
>>> gem.learn("second", as_task(-torch.eye(2), [0, 1]), None, [[0.5, 0.5], [1.0, 0.0]])
>>> gem.predict_logits(torch.eye(2)).shape  # preferences, samples, outputs
torch.Size([2, 2, 1])
>>> gem.updates  # two epochs of one batch: one model at the first task, two at the second
6
"""

from importlib import import_module

from ibcl.experiments.methods.baseline import Baseline
from ibcl.experiments.methods.class_scores import AnswersAmongAllClasses, ClassScores
from ibcl.experiments.methods.method import KeepsAllData, Method
from ibcl.experiments.methods.registration import (
    METHODS,
    Range,
    Registration,
    Space,
    create,
    options,
    register,
    registered,
)

__all__ = [
    "METHODS",
    "MODULES",
    "AnswersAmongAllClasses",
    "Baseline",
    "ClassScores",
    "KeepsAllData",
    "Method",
    "Range",
    "Registration",
    "Space",
    "create",
    "options",
    "register",
    "registered",
]

MODULES = (
    "ibcl_variants",
    "oracle",
    "map_oracle",
    "mlp_oracle",
    "rbf_oracle",
    "routed_oracle",
    "routed_oracle_ensemble",
    "gem",
    "agem",
    "der",
    "derpp",
    "vcl",
    "class_rehearsal",
    "nearest_class_mean",
    "streaming_lda",
    "class_gaussians",
    "pooled_ridge",
    "ranpac",
    "loranpac",
    "klda",
    "anacp",
    "convex_combination",
    "fisher_merging",
    "regmean",
    "mats",
    "ties",
    "l2p",
    "fine_tuning",
    "online_ewc",
    "online_laplace",
)
"""Files that register methods, in the order in which tables list them."""

for _module in MODULES:
    import_module(f"{__name__}.{_module}")
