"""Experts: whatever a task brings to answer with in place of its head, or beside it.

In p(y | x, w) = Σ_k r_k(x, w) p_k(y | x) nothing asks that p_k be a linear head. An expert is
fitted on its task's rows, gives p_k, and is kept as a part of its task: stored, forgotten and
merged with it. The gate, preferences, novelty, prediction sets and the service stay as they are.

* `Expert` and `Fitted`: the protocol. `EXPERTS` names the kinds that can be read back.
* `ibcl.experts.estimators`: any estimator of scikit-learn, stored with skops.
* `Auto`: boosting beside each task's head, with the `share` that held-out rows give it, on columns
  with categories `folded`.
* `Judgement`: what a task's rows say of the experts of tasks learnt before, which then answer for
  it too (`ibcl.experts.pool`).
"""

from ibcl.experts.auto import Auto
from ibcl.experts.expert import EXPERTS, Expert, Fitted, as_expert, expert_of
from ibcl.experts.folding import Groups, folded
from ibcl.experts.judgement import SMALLEST_SHARE, Judgement
from ibcl.experts.judges import Judges, thinned
from ibcl.experts.leave_one_out import has_leave_one_out, leave_one_out
from ibcl.experts.part import ExpertPart, columns_read
from ibcl.experts.pool import own_experts, task_experts
from ibcl.experts.share import BOOSTING_AGAINST, posterior_share

__all__ = [
    "BOOSTING_AGAINST",
    "EXPERTS",
    "SMALLEST_SHARE",
    "Auto",
    "Expert",
    "ExpertPart",
    "Fitted",
    "Groups",
    "Judgement",
    "Judges",
    "as_expert",
    "columns_read",
    "expert_of",
    "folded",
    "has_leave_one_out",
    "leave_one_out",
    "own_experts",
    "posterior_share",
    "task_experts",
    "thinned",
]
