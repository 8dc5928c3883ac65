"""Adapters against merges and retraining, on texts of 20 Newsgroups and one small language model.

Tasks arrive as token ids of MiniLM (backbone ``minilm-tokens``), so that a method may fine-tune the
model. Every contender is a function with a registration line in `contenders`; `study.run` asks each
for the same preferences after the last task. ``python -m ibcl.experiments.adapters`` prints the
table, line by line.
"""

from ibcl.experiments.adapters.contenders import CONTENDERS, Outcome, contender
from ibcl.experiments.adapters.study import Settings, run

__all__ = ["CONTENDERS", "Outcome", "Settings", "contender", "run"]
