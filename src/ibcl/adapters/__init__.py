r"""Adapters: a fine-tuned network per task, as a LoRA of one base model, behind the same gate.

A task k brings an adapter Δ_k of the frozen base f and a head g_k of its own,

    p(y | x, w) = Σ_k r_k(φ(x), w) p_k(y | x),
    p_k(y | x) = λ_k g_k(y | f_{Δ_k}(x)) + (1 − λ_k) h_k(y | φ(x)),

beside the evidence head h_k, with λ_k from held-out rows; all of it is fitted on the task's rows
alone from the same base. Nothing is merged: a preference is K numbers, and forgetting drops an
adapter. The gate reads the frozen base, so that only the adapters that matter for a row are run,
and the other tasks answer with their heads (`ibcl.routing.top_k`).

* `LoRA`: the expert, ``ibcl.IBCL(base, expert=ibcl.adapters.LoRA(rank=8))``.
* `Adapter`: one that is fitted or was trained elsewhere, as configuration and tensors.
* `read_folder`, `write_folder`, `averaged`: folders of peft in and out, and the one LoRA that is
  nearest to a preference.

Needs the extra ``adapters`` (peft, transformers).
"""

from ibcl.adapters.adapter import Adapter
from ibcl.adapters.averaging import averaged
from ibcl.adapters.exchange import bringing, export, with_head
from ibcl.adapters.folders import read_folder, write_folder
from ibcl.adapters.lora import LoRA

__all__ = [
    "Adapter",
    "LoRA",
    "averaged",
    "bringing",
    "export",
    "read_folder",
    "with_head",
    "write_folder",
]
