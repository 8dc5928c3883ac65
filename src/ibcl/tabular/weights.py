"""How often each sample counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ibcl.tabular.categories import UNKNOWN, Vocabulary, kind_of
from ibcl.tabular.tables import as_column, plain
from ibcl.tabular.values import Numbers, distinct, listing, text_of


def sample_weights(
    y: Any,
    sample_weight: Any = None,
    class_weight: str | Mapping[Any, float] | None = None,
    classes: Iterable[Any] | None = None,
) -> Numbers | None:
    """Return one weight per sample, or None where all weigh 1.

    Parameters
    ----------
    y : labels, one per sample.
    sample_weight : weights that are not negative, one per sample.
    class_weight : ``"balanced"`` lets every class weigh the same in total, n / (classes · n_c); a
        mapping gives each class its weight, 1 where it names none. Both factors are multiplied.
    classes : classes that are known beside those of ``y``.

    Raises
    ------
    ValueError
        If a weight is given to a class that is neither in ``y`` nor known, or if weights are not
        numbers, negative, or all zero.

    Examples
    --------
    >>> sample_weights(["a", "a", "a", "b"], class_weight="balanced").round(3).tolist()
    [0.667, 0.667, 0.667, 2.0]
    >>> sample_weights([0, 1]) is None
    True
    """
    labels = np.asarray(y)
    weights = None if sample_weight is None else _checked(sample_weight, len(labels))
    if class_weight is None:
        return weights
    if not isinstance(class_weight, Mapping):
        if not isinstance(class_weight, str) or class_weight != "balanced":
            raise ValueError(
                "class_weight must be 'balanced' or weights by class such as {'good': 2, 'bad': "
                f"1}}, not {class_weight!r}."
            )
        # It takes most of a second to import, which not everybody needs.
        from sklearn.utils.class_weight import compute_sample_weight

        factors = np.asarray(compute_sample_weight(class_weight, labels), dtype=np.float64)
    else:
        factors = _checked(_by_class(y, class_weight, classes), len(labels))
    return factors if weights is None else weights * factors


def _by_class(y: Any, class_weight: Mapping[Any, float], classes: Iterable[Any] | None) -> Numbers:
    found = distinct(as_column(y, "labels"))
    known = [*found.values, *(() if classes is None else classes)]
    # Known classes first told apart by their texts, whatever they were written as.
    names = list(dict.fromkeys(text_of(value, "label") for value in known))
    vocabulary = Vocabulary(names, kind_of(known))
    places = {key: vocabulary.find(text_of(key, "class"), "class") for key in class_weight}
    unknown = [key for key, place in places.items() if place == UNKNOWN]
    if unknown:
        raise ValueError(
            f"class_weight= names {listing(unknown)}, which is no class; the classes are "
            f"{listing(names)}."
        )
    each = np.ones(len(names))
    for key, place in places.items():
        each[place] = class_weight[key]
    of_label = np.array([vocabulary.find(text_of(v, "label"), "label") for v in found.values])
    result: Numbers = each[of_label][found.codes]
    return result


def _checked(values: Any, samples: int) -> Numbers:
    try:
        weights = np.asarray(plain(values), dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("Sample weights must be numbers, one per sample.") from None
    if weights.ndim == 0:
        weights = np.full(samples, float(weights))
    if weights.shape != (samples,):
        raise ValueError(
            f"Sample weights must be one number per sample ({samples:,}), but their shape is "
            f"{weights.shape}."
        )
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("Sample weights must be finite and not negative.")
    if not weights.any():
        raise ValueError("All sample weights are zero, so there is no sample to learn from.")
    return weights
