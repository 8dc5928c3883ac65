r"""Models as ONNX files, for runtimes without Python.

The graph has one input ``x`` and two outputs, all with any number of rows:

``outputs``
    Of the network, before the likelihood: logits, means or logarithms of rates.
``probabilities`` (of classes) or ``values``
    E[y | x], what `ibcl.Model.predict_proba` or `ibcl.Model.predict` answers; values in the
    target's own units.

What ``x`` is depends on how the model reads rows, and the file's metadata ``input`` says it:

* without an encoder, the numbers that the network takes, in single precision;
* of a table of numbers only, its columns as they are, in double precision, NaN where missing:
  scaling is part of the graph;
* of a table with categories or dates, the encoded inputs that ``model.encoder.inputs(frame)``
  returns, in single precision.

Everything but the reading of tables is in single precision, while Python answers in double:
probabilities agree to about three decimals, and better near the tasks' own inputs.

Metadata (all texts): ``input`` and ``inputs`` (what each column of x is, as a JSON list),
``classes`` (JSON), ``preference`` (JSON) and ``card`` (Markdown).
"""

from __future__ import annotations

import json
import logging
import threading
import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ibcl.encoding import Encoder, NumberReader
from ibcl.likelihoods import Likelihood

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_ROWS = 2**20
# The exporter keeps state of the whole process: two exports at once would spoil each other.
_EXPORTING = threading.Lock()


@dataclass(frozen=True)
class Graph:
    """What a file is made of.

    Parameters
    ----------
    module
        From the network's inputs to its outputs.
    example
        A few rows of the network's inputs.
    encoder
        How the model reads rows; None where they are the network's inputs.
    metadata
        Further texts for the file.
    """

    module: nn.Module
    likelihood: Likelihood
    example: Tensor
    encoder: Encoder | None
    metadata: Mapping[str, str]

    @property
    def reader(self) -> nn.Module | None:
        """The encoder as a module, where rows are numbers."""
        return self.encoder.reader() if isinstance(self.encoder, NumberReader) else None


class _Answering(nn.Module):
    """From x to the network's outputs, and to the answer in the user's units."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.reader = graph.reader or nn.Identity()
        self.module, self.likelihood = graph.module, graph.likelihood
        self.offset, self.scale = 0.0, 1.0
        if graph.encoder is not None and not graph.likelihood.classification:
            self.offset = float(graph.encoder.decode(torch.zeros(1))[0])
            self.scale = graph.encoder.scale

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs, and E[y | x]."""
        found = self.module(self.reader(x))
        outputs = found.flatten(1) if found.ndim > 1 else found[:, None]
        answer = self.likelihood.mean(outputs)
        if self.likelihood.classification:
            return outputs, answer
        # Units such as years leave little of single precision.
        return outputs, self.offset + self.scale * answer.double()


class ToldTask(nn.Module):
    """A network whose inputs carry a task id, as one that answers for a fixed task.

    Parameters
    ----------
    identity
        What is appended to every row to tell the task.
    """

    identity: Tensor

    def __init__(self, network: nn.Module, identity: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("identity", identity)

    def forward(self, x: Tensor) -> Any:
        """Outputs for inputs of the task."""
        return self.network(torch.cat([x, self.identity.expand(x.shape[0], -1)], 1))


def onnx_bytes(graph: Graph) -> bytes:
    """Return the bytes of an ONNX file, with any number of rows.

    Raises
    ------
    ImportError
        Where the packages that write ONNX are missing.
    ValueError
        Where the network is one that cannot be exported.
    """
    if find_spec("onnxscript") is None or find_spec("onnx") is None:
        raise ImportError(
            "ONNX files are written by onnx and onnxscript, which are not installed: "
            "pip install 'ibcl[onnx]'."
        )
    answering = _Answering(graph).cpu().eval()
    rows = torch.export.Dim("rows", min=1, max=_MOST_ROWS)
    with _EXPORTING, _quietly():
        try:
            program = torch.onnx.export(
                answering,
                (_example(graph),),
                dynamo=True,
                verbose=False,
                input_names=["x"],
                output_names=["outputs", answer_name(graph.likelihood)],
                dynamic_shapes=({0: rows},),
            )
            assert program is not None
            program.model.metadata_props.update(_metadata(graph))
            data: bytes = program.model_proto.SerializeToString()
        # The exporter passes on whatever a user's module raises.
        except Exception as error:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise ValueError(f"This network cannot be written as ONNX: {said}.") from None
    (found,) = program.model.graph.inputs
    if found.shape is None or isinstance(found.shape[0], int):
        raise ValueError(
            "This network cannot be written as ONNX for any number of rows: something in it takes "
            "the number of the example's rows for the only one, as len(x) does; use x.shape[0]."
        )
    return data


def answer_name(likelihood: Likelihood) -> str:
    """Return what the output with the answer is called."""
    return "probabilities" if likelihood.classification else "values"


def _example(graph: Graph) -> Tensor:
    """At least two rows, lest one row be taken for the only number of them."""
    inputs = graph.example.cpu()
    inputs = inputs.repeat(2, *[1] * (inputs.ndim - 1))[: max(2, len(inputs))]
    if graph.reader is None:
        return inputs
    assert isinstance(graph.encoder, NumberReader)
    return torch.zeros(len(inputs), graph.encoder.number_count, dtype=torch.float64)


def _metadata(graph: Graph) -> dict[str, str]:
    encoder = graph.encoder
    if encoder is None:
        described = "the network's own inputs, float32"
    elif graph.reader is not None:
        described = "the table's columns, float64, NaN where missing"
    else:
        described = "encoded rows, float32: model.encoder.inputs(frame) in Python"
    known = {"input": described}
    names = getattr(encoder, "names" if graph.reader is not None else "input_names", None)
    if names:
        known["inputs"] = json.dumps([str(name) for name in names])
    if encoder is not None and encoder.classes is not None:
        known["classes"] = json.dumps([_plain(value) for value in encoder.classes])
    return {**known, **graph.metadata}


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else str(value)


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence warnings about the exporter's own internals, which callers cannot act on."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
