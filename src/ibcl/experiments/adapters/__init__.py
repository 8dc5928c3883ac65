"""Adapters against merges and retraining, on texts of 20 Newsgroups and one small language model.

Tasks arrive as token ids of MiniLM (backbone ``minilm-tokens``), so that a method may fine-tune the
model. Every contender is a function with a registration line in `contenders`, every merge of the
adapters one in `merges`; `study.run` asks each for the same preferences after the last task.
``python -m ibcl.experiments.adapters`` prints the lines of the table as they are found, and
``python -m ibcl.experiments.adapters.table`` makes a table of them.
"""

from ibcl.experiments.adapters.contenders import CONTENDERS, Outcome, contender
from ibcl.experiments.adapters.study import Settings, run

__all__ = ["CONTENDERS", "Outcome", "Settings", "contender", "run"]
