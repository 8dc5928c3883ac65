"""How often each sample counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ibcl.tabular.values import Numbers, text_of


def sample_weights(
    y: Any,
    sample_weight: Any = None,
    class_weight: str | Mapping[Any, float] | None = None,
) -> Numbers | None:
    """Return one weight a sample, or None where all weigh 1.

    Parameters
    ----------
    y : labels, one a sample.
    sample_weight : weights that are not negative, one a sample.
    class_weight : ``"balanced"`` lets every class weigh the same in total, n / (classes · n_c); a
        mapping gives each class its weight, 1 where it names none. Both factors are multiplied.

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
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ValueError(
                f"class_weight must be 'balanced' or weights by class, not {class_weight!r}."
            )
        # It takes most of a second to import, which not everybody needs.
        from sklearn.utils.class_weight import compute_sample_weight

        factors = np.asarray(compute_sample_weight(class_weight, labels), dtype=np.float64)
    else:
        by_name = {text_of(key, "class"): value for key, value in class_weight.items()}
        found = {text_of(label, "label"): label for label in np.unique(labels)}
        each = {name: float(by_name.get(name, 1.0)) for name in found}
        factors = _checked([each[text_of(label, "label")] for label in labels], len(labels))
    return factors if weights is None else weights * factors


def _checked(values: Any, samples: int) -> Numbers:
    try:
        weights = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("Sample weights must be numbers, one a sample.") from None
    if weights.ndim == 0:
        weights = np.full(samples, float(weights))
    if weights.shape != (samples,):
        raise ValueError(
            f"Sample weights must be one number a sample ({samples:,}), but their shape is "
            f"{weights.shape}."
        )
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("Sample weights must be finite and not negative.")
    if not weights.any():
        raise ValueError("All sample weights are zero, so there is no sample to learn from.")
    return weights
