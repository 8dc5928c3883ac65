"""Tables: what the columns of a frame, its classes and its targets mean to a learner.

A `Schema` is fitted on the first task and never changes afterwards, because the parameters of a
model mean nothing without it. It is given to a learner as ``IBCL(network, encoder=schema)`` and
kept, as plain numbers and text, in every knowledge base and every exported model.
"""

from ibcl.tabular.answers import in_scaled_units, scales, value_likelihood
from ibcl.tabular.columns import CategoricalColumn, NumericColumn
from ibcl.tabular.heads import head_names, make_head, outputs_for
from ibcl.tabular.schema import LARGEST_INPUT, Schema, usable_columns
from ibcl.tabular.targets import ClassTarget, ValueTarget
from ibcl.tabular.values import Numbers
from ibcl.tabular.weights import sample_weights

__all__ = [
    "LARGEST_INPUT",
    "CategoricalColumn",
    "ClassTarget",
    "Numbers",
    "NumericColumn",
    "Schema",
    "ValueTarget",
    "head_names",
    "in_scaled_units",
    "make_head",
    "outputs_for",
    "sample_weights",
    "scales",
    "usable_columns",
    "value_likelihood",
]
