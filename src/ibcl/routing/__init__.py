"""Routing: which task an input comes from, and the answer of all tasks behind that gate.

The pooling rule `ibcl.pooling.RoutedEvidence` makes from a knowledge base: `records`, what is kept
of every task's features; `gate_of_records`, the gate between all tasks; `densities`, the feature
maps and the gate's densities of tasks and classes; and `predictive`, the mixture
p(y | φ, w) = Σ_k r_k(φ, w) p_k(y | φ) of the tasks' own answers, for one preference or
`many_preferences`. Its first version, `ibcl.pooling.Routed`, has a gate made of `moments`.
"""

from ibcl.routing.background import log_background_share
from ibcl.routing.densities import DensityGate, DensitySettings
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
from ibcl.routing.gate_of_records import density_gate
from ibcl.routing.many_preferences import RoutedAnswers
from ibcl.routing.moments import LARGEST_SUMMED, Moments
from ibcl.routing.predictive import RoutedNetworks, TaskHeads
from ibcl.routing.records import ClassDensities, Ranks, classes_of
from ibcl.routing.shared import SharedScatters
from ibcl.routing.sketches import RowSketch
from ibcl.routing.stored import gate_from_tensors

__all__ = [
    "LARGEST_SUMMED",
    "LINEAR_FROM_EVIDENCE",
    "LINEAR_FROM_MOMENTS",
    "QUADRATIC",
    "ClassDensities",
    "DensityGate",
    "DensitySettings",
    "Gate",
    "GateSettings",
    "Moments",
    "Ranks",
    "RoutedAnswers",
    "RoutedNetworks",
    "RowSketch",
    "SharedScatters",
    "TaskGate",
    "TaskHeads",
    "classes_of",
    "density_gate",
    "evidence_components",
    "gate_from_tensors",
    "linear_gate",
    "log_background_share",
    "moment_components",
    "quadratic_gate",
]
