"""Adapters against merges and retraining, on texts with MiniLM and images with EfficientNet-lite0.

Tasks arrive as what the layers below the adapted ones return (`bases`), so that a method may
fine-tune the rest. Every contender is a function with a registration line in `contenders`, every
merge of the adapters one in `merges`; `study.run` asks each for the same preferences after the last
task. ``python -m ibcl.experiments.adapters BENCHMARK --output FILE`` adds the lines that the file
lacks, and ``docs/result_tables.py`` makes the tables of docs/results/adapters of them.
"""

from ibcl.experiments.adapters.contenders import CONTENDERS, Outcome, contender
from ibcl.experiments.adapters.study import Settings, run

__all__ = ["CONTENDERS", "Outcome", "Settings", "contender", "run"]
