"""Sets of answers that hold the right one with a given probability, for every preference.

Conformal prediction: whatever the faults of a model, the set {y : s(x, y) ≥ τ} misses the right
answer with probability α at most, where τ comes from the scores of calibration samples. A
preference is a known mixture of the tasks' distributions, so that τ can be had for any preference
at once.

* `Calibration`: what is kept of a task.
* `joint_threshold` and `union_thresholds`: τ for one score of all tasks, or for one score of each.
* `prediction_set`, `union_set` and the intervals: the answers.
"""

from ibcl.conformal.calibration import Calibration, CalibrationRows, as_kept, held_out, rounded
from ibcl.conformal.scores import (
    CLASS_SCORES,
    ClassScore,
    component_scores,
    cumulative_scores,
    label_scores,
    probability_scores,
    residual_scores,
    smaller_class_score,
)
from ibcl.conformal.sets import (
    NOTHING,
    component_intervals,
    disjoint,
    hull,
    in_words,
    inside,
    label_sets,
    prediction_set,
    residual_intervals,
    union_set,
)
from ibcl.conformal.thresholds import (
    GUARANTEES,
    Guarantee,
    joint_threshold,
    mixture_threshold,
    smallest_alpha,
    task_thresholds,
    uniform_thresholds,
    union_thresholds,
)

__all__ = [
    "CLASS_SCORES",
    "GUARANTEES",
    "NOTHING",
    "Calibration",
    "CalibrationRows",
    "ClassScore",
    "Guarantee",
    "as_kept",
    "component_intervals",
    "component_scores",
    "cumulative_scores",
    "disjoint",
    "held_out",
    "hull",
    "in_words",
    "inside",
    "joint_threshold",
    "label_scores",
    "label_sets",
    "mixture_threshold",
    "prediction_set",
    "probability_scores",
    "residual_intervals",
    "residual_scores",
    "rounded",
    "smaller_class_score",
    "smallest_alpha",
    "task_thresholds",
    "uniform_thresholds",
    "union_set",
    "union_thresholds",
]
