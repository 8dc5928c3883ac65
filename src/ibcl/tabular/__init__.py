"""Tables: what the columns of a frame, its classes and its targets mean to a learner.

A `Schema` is fitted on the first task. Later tasks may add categories and classes to it
(`Schema.grown`), but change nothing that is there, because the parameters of a model mean nothing
without it. It is given to a learner as ``IBCL(network, encoder=schema)`` and kept, as plain numbers
and text, in every knowledge base and every exported model.

There is one reading of values, whatever they come in (`ibcl.tabular.values`): empty is missing,
text is text.
"""

from ibcl.tabular.columns import CategoricalColumn, DateColumn, NumericColumn, scaled_numbers
from ibcl.tabular.csv_files import csv_blocks, read_csv
from ibcl.tabular.growth import Growth, input_positions
from ibcl.tabular.head_choice import HeadChoice, choose_head, choose_head_by_size
from ibcl.tabular.heads import (
    DEFAULT_HEAD,
    DEFAULT_WIDTH,
    head_names,
    make_head,
    outputs_for,
    readable_by_experts,
    table_pooling,
)
from ibcl.tabular.schema import LARGEST_INPUT, Schema
from ibcl.tabular.selection import INDEX, has_no_name, numbers_as_texts, usable_columns
from ibcl.tabular.tables import plain
from ibcl.tabular.target_likelihood import in_scaled_units, scales, value_likelihood
from ibcl.tabular.targets import ClassTarget, ValueTarget, target_values
from ibcl.tabular.unknown import Unknown, UnknownCategoriesWarning
from ibcl.tabular.values import Numbers, text_of
from ibcl.tabular.weights import sample_weights
from ibcl.tabular.what_stays import remembered

__all__ = [
    "DEFAULT_HEAD",
    "DEFAULT_WIDTH",
    "INDEX",
    "LARGEST_INPUT",
    "CategoricalColumn",
    "ClassTarget",
    "DateColumn",
    "Growth",
    "HeadChoice",
    "Numbers",
    "NumericColumn",
    "Schema",
    "Unknown",
    "UnknownCategoriesWarning",
    "ValueTarget",
    "choose_head",
    "choose_head_by_size",
    "csv_blocks",
    "has_no_name",
    "head_names",
    "in_scaled_units",
    "input_positions",
    "make_head",
    "numbers_as_texts",
    "outputs_for",
    "plain",
    "read_csv",
    "readable_by_experts",
    "remembered",
    "sample_weights",
    "scaled_numbers",
    "scales",
    "table_pooling",
    "target_values",
    "text_of",
    "usable_columns",
    "value_likelihood",
]
