"""A narrower view of wide features that fits nothing: a seeded random orthogonal projection."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def orthogonal_projection(inputs: int, outputs: int, seed: int = 0) -> NDArray[np.float32]:
    r"""Return a random matrix with orthogonal columns that keeps lengths on average.

    Features :math:`x \in \mathbb{R}^n` become :math:`\sqrt{n/m}\; Q^\top x \in \mathbb{R}^m`, with
    :math:`Q` the orthonormal factor of a Gaussian matrix, so that
    :math:`\mathbb{E}\|\sqrt{n/m}\,Q^\top x\|^2 = \|x\|^2`. Nothing is fitted, so nothing can leak
    from tasks that have not arrived.

    Examples
    --------
    >>> q = orthogonal_projection(8, 2)
    >>> np.allclose(q.T @ q, 4 * np.eye(2), atol=1e-5)
    True
    """
    if not 1 <= outputs <= inputs:
        raise ValueError(f"cannot project {inputs} features to {outputs}: expected 1 to {inputs}")
    gaussian = np.random.default_rng(seed).standard_normal((inputs, outputs))
    q, r = np.linalg.qr(gaussian)
    # QR is unique up to signs; fixing them makes Q uniform and the same on every LAPACK.
    q = q * np.sign(np.diag(r))
    projection: NDArray[np.float32] = (q * np.sqrt(inputs / outputs)).astype(np.float32)
    return projection
