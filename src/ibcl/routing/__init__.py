"""Routing: which task an input comes from, and the answer of all tasks behind that gate.

The pooling rule `ibcl.pooling.RoutedEvidence` makes from a knowledge base: `records`, what is kept
of every task's features under the `maps`; `densities`, the gate between all tasks; and `experts`,
the mixture p(y | φ, w) = Σ_k r_k(φ, w) p_k(y | φ) of the tasks' own answers. Its first version,
`ibcl.pooling.Routed`, makes the same of `moments`, `gate` and `predictive`.
"""

from ibcl.routing.background import log_background_share
from ibcl.routing.densities import DensityGate, DensitySettings, density_gate
from ibcl.routing.experts import (
    ExpertAnswers,
    Experts,
    RoutedExperts,
    are_experts,
    experts_from_tensors,
)
from ibcl.routing.gate import (
    LINEAR_FROM_EVIDENCE,
    LINEAR_FROM_MOMENTS,
    QUADRATIC,
    Gate,
    GateSettings,
    TaskGate,
    evidence_components,
    linear_gate,
    moment_components,
    quadratic_gate,
)
from ibcl.routing.moments import LARGEST_SUMMED, Moments
from ibcl.routing.predictive import (
    GatedPredictives,
    RoutedAnswers,
    RoutedNetworks,
    TaskHeads,
    gate_from_tensors,
)
from ibcl.routing.records import ClassDensities, Ranks, classes_of
from ibcl.routing.shared import SharedScatters

__all__ = [
    "LARGEST_SUMMED",
    "LINEAR_FROM_EVIDENCE",
    "LINEAR_FROM_MOMENTS",
    "QUADRATIC",
    "ClassDensities",
    "DensityGate",
    "DensitySettings",
    "ExpertAnswers",
    "Experts",
    "Gate",
    "GateSettings",
    "GatedPredictives",
    "Moments",
    "Ranks",
    "RoutedAnswers",
    "RoutedExperts",
    "RoutedNetworks",
    "SharedScatters",
    "TaskGate",
    "TaskHeads",
    "are_experts",
    "classes_of",
    "density_gate",
    "evidence_components",
    "experts_from_tensors",
    "gate_from_tensors",
    "linear_gate",
    "log_background_share",
    "moment_components",
    "quadratic_gate",
]
