"""An adapter with its head: what is kept of it, and how it answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from torch.nn import functional

from ibcl.adapters.adapted import Adapted, restored
from ibcl.adapters.configuration import Configuration, understood
from ibcl.experts.expert import Fitted
from ibcl.networks import FlatNetwork

HEAD_WEIGHT, HEAD_BIAS = "head.weight", "head.bias"
_CLASSES = "classes"
# Samples that go through an adapted base at once.
_ROWS = 128


@dataclass(frozen=True, eq=False)
class Adapter(Fitted):
    """An adapter of peft and the head behind it, as plain numbers: it holds nothing of the base.

    Parameters
    ----------
    configuration
        Of peft, as far as it is understood (`ibcl.adapters.configuration`).
    tensors
        By the names that peft writes.
    head
        Weight of shape (outputs, columns) and bias, behind the features that the learner's network
        reads; None where the adapter brings the base's own classification layer, or none.
    classes
        Numbers of the classes the head's outputs stand for, shape (outputs,); None for values.
    columns
        Of an answer: all tasks' classes, or values.
    """

    configuration: Configuration
    tensors: Mapping[str, Tensor]
    head: tuple[Tensor, Tensor] | None
    classes: Tensor | None
    columns: int

    name: ClassVar[str] = "lora"
    # Without a type, lest it be a field.
    costly = True

    def answers(self, x: Tensor) -> Tensor:
        """Refused: it answers `on` its base only."""
        raise ValueError("An adapter answers on its base model only: give it one with on(network).")

    def on(self, network: FlatNetwork) -> AdapterOnBase:
        """Return it with the base model it adapts."""
        return AdapterOnBase(self, network)

    @property
    def answering(self) -> str:
        """What it answers with: its own head, the base's classification layer, or nothing."""
        if self.head is not None:
            return "head"
        return "logits" if self.configuration.get("modules_to_save") else "nothing"

    def encode(self) -> bytes:
        """Return a line of JSON and a safetensors file."""
        known = {
            "configuration": self.configuration,
            "columns": self.columns,
            "head": self.head is not None,
        }
        kept = {f"adapter.{name}": value for name, value in self.tensors.items()}
        if self.head is not None:
            kept |= {HEAD_WEIGHT: self.head[0], HEAD_BIAS: self.head[1]}
        if self.classes is not None:
            kept[_CLASSES] = self.classes
        return json.dumps(known, sort_keys=True).encode() + b"\n" + save(kept)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return what `encode` wrote."""
        line, _, rest = data.partition(b"\n")
        try:
            known, kept = json.loads(line), load(rest)
            head = (kept.pop(HEAD_WEIGHT), kept.pop(HEAD_BIAS)) if known["head"] else None
            classes, columns = kept.pop(_CLASSES, None), known["columns"]
            configuration = understood(known["configuration"])
        except (ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            raise ValueError(f"this is no adapter ({error})") from None
        tensors = {name.removeprefix("adapter."): value for name, value in kept.items()}
        if not isinstance(columns, int) or columns < 1:
            raise ValueError("this is no adapter (its number of columns is not valid)")
        return cls(configuration, tensors, head, classes, columns)


@dataclass(eq=False)
class AdapterOnBase(Fitted):
    """An adapter with its base model: p_k(y | x) of the inputs that φ carries.

    Safe in any number of threads: each runs a copy of the base's structure with shared weights.
    """

    adapter: Adapter
    network: FlatNetwork
    _of_thread: Any = field(default_factory=threading.local, repr=False)

    name: ClassVar[str] = Adapter.name
    # Without a type, lest it be a field.
    costly = True

    def __getstate__(self) -> dict[str, Any]:
        return {"adapter": self.adapter, "network": self.network}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _of_thread=threading.local())

    @property
    def adapted(self) -> Adapted:
        """The calling thread's own adapted base."""
        found: Adapted | None = getattr(self._of_thread, "adapted", None)
        if found is None:
            frozen = self.network.backbone
            assert frozen is not None
            found = restored(frozen, self.adapter.configuration, self.adapter.tensors)
            found.to(self.network.device).eval()
            self._of_thread.adapted = found
        return found

    def answers(self, x: Tensor) -> Tensor:
        """Class probabilities, zero for classes the task has not seen; or values."""
        empty = x.new_zeros(0, self.adapter.columns, dtype=torch.float64)
        with torch.no_grad():
            return torch.cat([empty, *(self._answers(rows) for rows in torch.split(x, _ROWS))])

    def encode(self) -> bytes:
        """Return the adapter's bytes."""
        return self.adapter.encode()

    def _answers(self, features: Tensor) -> Tensor:
        outputs = self.outputs(features).double()
        if self.adapter.classes is None:
            return outputs
        found = outputs.new_zeros(len(outputs), self.adapter.columns)
        found[:, self.adapter.classes.to(outputs.device)] = torch.softmax(outputs, 1)
        return found

    def outputs(self, features: Tensor) -> Tensor:
        """What the head, or the base's classification layer, makes of the adapted base."""
        adapter, flat = self.adapter, features.flatten(1)
        read, carried = flat[:, : self.network.columns], flat[:, self.network.columns :]
        if adapter.head is not None:
            weight, bias = (it.to(self.network.device) for it in adapter.head)
            return functional.linear(self.adapted(read, carried), weight, bias)
        if adapter.answering == "logits":
            return self.adapted.logits(carried)
        raise ValueError(
            "An adapter without a head has no answer of its own; ask for routing or routing_table, "
            "or add it with labelled inputs of two classes or more."
        )

    def features(self, x: Tensor) -> Tensor:
        """φ of the adapted base, which a head reads; of inputs as the frozen φ carries them."""
        flat, columns = x.flatten(1), self.network.columns
        with torch.no_grad():
            parts = [
                self.adapted(rows[:, :columns], rows[:, columns:])
                for rows in torch.split(flat, _ROWS)
            ]
        return torch.cat(parts)
