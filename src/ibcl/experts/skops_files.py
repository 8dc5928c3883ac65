"""Estimators as bytes, written and read by skops: nothing is ever unpickled.

skops names what it writes by addresses in memory, and a zip archive says when it was written. Both
are replaced, so that the same estimator has the same bytes. Reading refuses every type that is not
known to be harmless: skops' own list, and `TRUSTED`.
"""

from __future__ import annotations

import io
import json
import zipfile
from importlib import import_module
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any

TRUSTED: set[str] = {
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
}
"""Types beyond skops' own list that stored estimators may hold: plain data, read in scikit-learn's
own way. Add to it what you trust before loading experts of other libraries."""

_SCHEMA = "schema.json"
_DATE = (1980, 1, 1, 0, 0, 0)


def _skops() -> ModuleType:
    try:
        return import_module("skops.io")
    except ImportError:
        raise ValueError(
            "Estimators as experts are stored with skops, which is not installed: "
            "pip install 'ibcl[tables]'."
        ) from None


def write_estimator(estimator: Any) -> bytes:
    """Return an estimator as bytes, compressed."""
    found = zipfile.ZipFile(io.BytesIO(_skops().dumps(estimator)))
    schema = json.loads(found.read(_SCHEMA))
    files: dict[str, str] = {}
    _number(schema, {}, files)
    contents = {new: found.read(old) for old, new in files.items()}
    contents[_SCHEMA] = json.dumps(schema, separators=(",", ":")).encode()
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return written.getvalue()


def _number(node: Any, ids: dict[int, int], files: dict[str, str]) -> None:
    """Replace ids and files' names by numbers in the order of first appearance."""
    for value in node.values() if isinstance(node, dict) else node:
        if isinstance(value, dict | list):
            _number(value, ids, files)
    if isinstance(node, dict) and isinstance(node.get("__id__"), int):
        node["__id__"] = ids.setdefault(node["__id__"], len(ids))
    if isinstance(node, dict) and "__loader__" in node and isinstance(node.get("file"), str):
        suffix = PurePosixPath(node["file"]).suffix
        node["file"] = files.setdefault(node["file"], f"{len(files)}{suffix}")


def read_estimator(data: bytes) -> Any:
    """Read an estimator, if all its types are trusted."""
    skops = _skops()
    try:
        unknown = [name for name in skops.get_untrusted_types(data=data) if name not in TRUSTED]
    except Exception as error:
        raise ValueError(f"this is no estimator that skops wrote ({error})") from None
    if unknown:
        raise ValueError(
            f"the estimator holds the types {', '.join(unknown)}, which are not trusted; add them "
            "to ibcl.experts.estimators.TRUSTED if you know where it comes from"
        )
    try:
        return skops.loads(data, trusted=sorted(TRUSTED))
    except Exception as error:
        raise ValueError(f"the estimator cannot be read ({error})") from None
