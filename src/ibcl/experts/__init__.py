"""Experts: whatever a task brings to answer with in place of its head, or beside it.

In p(y | x, w) = Σ_k r_k(x, w) p_k(y | x) nothing asks that p_k be a linear head. An expert is
fitted on its task's rows, gives p_k, and is kept as a part of its task: stored, forgotten and
merged with it. The gate, preferences, novelty, prediction sets and the service stay as they are.

* `Expert` and `Fitted`: the protocol. `EXPERTS` names the kinds that can be read back.
* `ibcl.experts.estimators`: any estimator of scikit-learn, stored with skops.
* `Auto`: boosting beside each task's head, with the `share` that held-out rows give it, on columns
  with categories `folded`.
"""

from ibcl.experts.auto import Auto
from ibcl.experts.expert import EXPERTS, Expert, Fitted, as_expert, expert_of
from ibcl.experts.folding import Groups, folded
from ibcl.experts.leave_one_out import has_leave_one_out, leave_one_out
from ibcl.experts.part import ExpertPart, columns_read, task_experts
from ibcl.experts.share import posterior_share

__all__ = [
    "EXPERTS",
    "Auto",
    "Expert",
    "ExpertPart",
    "Fitted",
    "Groups",
    "as_expert",
    "columns_read",
    "expert_of",
    "folded",
    "has_leave_one_out",
    "leave_one_out",
    "posterior_share",
    "task_experts",
]
