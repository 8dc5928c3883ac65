"""Learners and models in MLflow: logged, loaded and served, with the preference as a parameter.

::

    info = ibcl.mlflow.log_model(learner, name="movies")
    served = mlflow.pyfunc.load_model(info.model_uri)
    served.predict(frame, params={"preference": {"sci-fi": 0.8, "documentary": 0.2}})

The model's folder holds what `ibcl.hub` describes, and this module reads it: nothing is pickled.
A base model of `transformers` is kept beside it, as its own `save_pretrained` writes it, and texts
are sent as token ids, ``{"inputs": {"input_ids": [[...]], "attention_mask": [[...]]}, ...}``.
Answers are frames with the column ``prediction`` and, for classes, a column ``probability of ...``
for each of them. Without a preference all tasks weigh the same; a single `ibcl.Model` has its own
and takes none. ``mlflow models serve -m <uri> --env-manager local`` serves it by REST.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ibcl.encoding import Encoder
from ibcl.learner import IBCL
from ibcl.model import Model
from ibcl.networks import token_ids
from ibcl.pretrained import from_pretrained

FLAVOUR = "ibcl"
_FOLDER = "ibcl"
# In that folder.
_BASE = "base"
_PREFERENCE = "preference"
_IDS, _MASK = "input_ids", "attention_mask"


def _mlflow() -> Any:
    try:
        import mlflow.models
        import mlflow.pyfunc
        import mlflow.types
    except ImportError:
        raise ImportError(
            "Models are logged by MLflow, which is not installed: pip install 'ibcl[mlflow]'."
        ) from None
    return mlflow


class PyFunc:
    """What MLflow calls: rows and parameters in, a frame of answers out.

    Parameters
    ----------
    known
        A learner, or the model of one preference.
    """

    def __init__(self, known: IBCL | Model) -> None:
        self.known = known

    def predict(self, rows: Any, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Answer rows under ``params["preference"]``; all tasks weigh the same without one."""
        model = self._model((params or {}).get(_PREFERENCE))
        features = model.features(_table(rows, model.encoder))
        answers = {"prediction": np.asarray(model.predict(features))}
        if model.likelihood.classification:
            chances = np.asarray(model.predict_proba(features))
            names = _class_names(model.encoder, chances.shape[1])
            answers |= {f"probability of {name}": chances[:, n] for n, name in enumerate(names)}
        elif answers["prediction"].ndim == 2 and answers["prediction"].shape[1] > 1:
            values = answers["prediction"]
            answers = {f"prediction {n + 1}": values[:, n] for n in range(values.shape[1])}
        return pd.DataFrame({name: np.ravel(values) for name, values in answers.items()})

    def _model(self, preference: Any) -> Model:
        if isinstance(self.known, Model):
            return self.known
        tasks = self.known.tasks
        if preference is None or len(preference) == 0:
            preference = dict.fromkeys(tasks, 1 / len(tasks))
        return self.known.model(preference)


def _table(rows: Any, encoder: Encoder | None) -> Any:
    """Return a frame whose columns have no names, or need none, as an array; texts as token ids."""
    named = getattr(encoder, "names", None) is not None
    if encoder is None and isinstance(rows, Mapping | pd.DataFrame) and _IDS in rows:
        tokens = {name: np.stack([*rows[name]]) for name in (_IDS, _MASK) if name in rows}
        return token_ids(tokens)
    return rows.to_numpy() if isinstance(rows, pd.DataFrame) and not named else rows


def _class_names(encoder: Encoder | None, count: int) -> Sequence[Any]:
    classes = None if encoder is None else encoder.classes
    return range(count) if classes is None else classes


def signature(model: Any) -> Any:
    """Return MLflow's signature of a learner: columns in, answers out, and the preference.

    Columns are of any type, because what fits is checked, and said in a sentence, by the learner:
    MLflow itself would refuse whole numbers in a column of numbers.
    """
    mlflow, known = _mlflow(), _known(model)
    types = mlflow.types.schema
    params = None
    if isinstance(known, IBCL):
        shares = types.Object([types.Property(task, types.DataType.double) for task in known.tasks])
        even = dict.fromkeys(known.tasks, 1 / len(known.tasks))
        params = types.ParamSchema([types.ParamSpec(_PREFERENCE, shares, even)])
    return mlflow.models.ModelSignature(
        inputs=_inputs(types, known), outputs=_outputs(types, known), params=params
    )


def _inputs(types: Any, known: IBCL | Model) -> Any:
    encoder = known.encoder
    names = getattr(encoder, "names", None)
    if names is not None:
        return types.Schema([types.ColSpec(types.AnyType(), name) for name in names])
    if encoder is None:
        width = (known.network.specification or {}).get("inputs")
    else:
        width = getattr(encoder, "number_count", None)
    if width is None:
        return None
    return types.Schema([types.ColSpec(types.AnyType()) for _ in range(width)])


def _outputs(types: Any, known: IBCL | Model) -> Any:
    """Describe the answers of classes, and of one value; others are told by their number only."""
    likelihood = known.likelihood if isinstance(known, Model) else known.state.likelihood
    classes = None if known.encoder is None else known.encoder.classes
    if likelihood.classification and classes is not None:
        kinds = {type(value) for value in classes}
        named = {str: "string", bool: "boolean", int: "long", float: "double"}
        kind = named.get(kinds.pop()) if len(kinds) == 1 else None
        chances = [types.ColSpec("double", f"probability of {name}") for name in classes]
        return types.Schema([types.ColSpec(kind or types.AnyType(), "prediction"), *chances])
    if not likelihood.classification and known.encoder is not None:
        return types.Schema([types.ColSpec("double", "prediction")])
    return None


def _known(model: Any) -> IBCL | Model:
    known = getattr(model, "learner_", model)
    if not isinstance(known, IBCL | Model):
        raise ValueError(
            f"A learner, a fitted estimator or a model can be logged, not {type(model).__name__}."
        )
    if isinstance(known, IBCL) and not known.tasks:
        raise ValueError("This learner has learnt no task yet: learn one before it is logged.")
    if known.network.specification is None and _base(known) is None:
        raise ValueError(
            "MLflow could not build this network again, which neither ibcl.networks nor "
            "transformers built; log a learner whose network one of them did, such as a linear "
            "head on features computed before."
        )
    return known


def _base(known: IBCL | Model) -> Any:
    """Return the base model of `transformers` that something was learnt on, None without one."""
    frozen = known.network.backbone
    base = None if frozen is None else frozen.backbone
    return base if hasattr(base, "save_pretrained") and hasattr(base, "config") else None


def save_model(
    model: Any,
    path: str,
    *,
    mlflow_model: Any = None,
    pip_requirements: Sequence[str] | None = None,
    input_example: Any = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Save a learner, a fitted estimator or a model as a folder of MLflow.

    Parameters
    ----------
    mlflow_model
        What MLflow knows about it already.
    pip_requirements
        Of whoever loads it; this version of ibcl where None.
    input_example
        A few rows to show to others, kept with it.
    metadata
        Further facts for MLflow.
    """
    mlflow, known = _mlflow(), _known(model)
    described = mlflow.models.Model() if mlflow_model is None else mlflow_model
    folder = Path(path)
    known.save_pretrained(folder / _FOLDER)
    base = _base(known)
    if base is not None:
        base.save_pretrained(folder / _FOLDER / _BASE)
    described.signature = signature(known)
    if metadata is not None:
        described.metadata = dict(metadata)
    if input_example is not None:
        mlflow.models.utils._save_example(described, input_example, str(folder))
    described.add_flavor(FLAVOUR, version=version("ibcl"), data=_FOLDER)
    mlflow.pyfunc.add_to_model(
        described,
        loader_module=__name__,
        data=_FOLDER,
        python_env="python_env.yaml",
        model_code_path=None,
    )
    needed = [f"ibcl[mlflow]=={version('ibcl')}"] if pip_requirements is None else pip_requirements
    (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in needed))
    python = ".".join(map(str, sys.version_info[:3]))
    (folder / "python_env.yaml").write_text(
        f"python: {python}\ndependencies:\n- -r requirements.txt\n"
    )
    described.save(str(folder / "MLmodel"))


def log_model(model: Any, name: str = "model", **settings: Any) -> Any:
    """Log a learner, a fitted estimator or a model to the active run of MLflow.

    Parameters
    ----------
    settings
        As in `save_model`, and as in MLflow's own flavours, such as ``registered_model_name``.

    Returns
    -------
    MLflow's ``ModelInfo``, whose ``model_uri`` is what ``mlflow.pyfunc.load_model`` takes.
    """
    known = _known(model)
    return _mlflow().models.Model.log(
        artifact_path=None, name=name, flavor=sys.modules[__name__], model=known, **settings
    )


def load_model(model_uri: str) -> IBCL | Model:
    """Load what was logged or saved, as it was: the learner, or the model."""
    _mlflow()
    from mlflow.artifacts import download_artifacts

    return _read(Path(download_artifacts(artifact_uri=model_uri)) / _FOLDER)


def _load_pyfunc(path: str) -> PyFunc:
    """Return what ``mlflow.pyfunc.load_model`` calls; MLflow finds this function by its name."""
    return PyFunc(_read(Path(path)))


def _read(folder: Path) -> IBCL | Model:
    base = folder / _BASE
    return from_pretrained(folder, network=base if base.is_dir() else None)
