"""What a table's schema tells of the tasks it was made from, whichever of them are forgotten.

Later tasks were learnt in the units of the first, and numbers of classes and categories are places
in lists: none of it can be taken back without the data, so it is named when a task is forgotten.
"""

from __future__ import annotations

from ibcl.tabular.columns import CategoricalColumn, DateColumn, NumericColumn
from ibcl.tabular.schema import Schema
from ibcl.tabular.targets import ClassTarget


def remembered(schema: Schema) -> tuple[str, ...]:
    """Return what stays in a schema when a task is forgotten, in words.

    Examples
    --------
    >>> schema = Schema.fit([[1.0], [2.0]], ["bad", "good"])
    >>> remembered(schema)
    ('means and scales of columns', 'what fills in missing numbers', 'names of classes')
    """
    columns = schema.columns
    classes = isinstance(schema.target, ClassTarget)
    found = {
        "means and scales of columns": any(_is_scaled(column) for column in columns),
        "what fills in missing numbers": any(isinstance(c, NumericColumn) for c in columns),
        "names of categories": any(isinstance(c, CategoricalColumn) for c in columns),
        "names of classes": classes,
        "mean and scale of the target": not classes,
    }
    return tuple(what for what, stays in found.items() if stays)


def _is_scaled(column: object) -> bool:
    """Whether a column is read in units that came from its rows."""
    if isinstance(column, NumericColumn):
        return (column.centre, column.scale) != (0, 1)
    return isinstance(column, DateColumn)
