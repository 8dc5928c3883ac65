"""Reading a table of numbers inside of a graph, for runtimes without pandas."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ibcl.tabular.columns import NumericColumn


class ScaledNumbers(nn.Module):
    """From float64 rows, NaN where missing, to scaled numbers and then their indicators.

    Examples
    --------
    >>> column = NumericColumn(name="a", indicator=True, centre=1.0, scale=2.0, fill=3.0)
    >>> ScaledNumbers([column])(torch.tensor([[5.0], [torch.nan]], dtype=torch.float64))
    tensor([[2., 0.],
            [1., 1.]])
    """

    centre: Tensor
    scale: Tensor
    fill: Tensor
    logarithmic: Tensor

    def __init__(self, columns: Sequence[NumericColumn]) -> None:
        super().__init__()
        for name in ("centre", "scale", "fill"):
            values = [getattr(column, name) for column in columns]
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))
        far = [column.logarithmic for column in columns]
        self.register_buffer("logarithmic", torch.tensor(far, dtype=torch.bool))
        self.any_logarithmic = any(far)
        self.indicated = [place for place, column in enumerate(columns) if column.indicator]

    def forward(self, x: Tensor) -> Tensor:
        """Inputs of the network, float32."""
        missing = torch.isnan(x)
        scaled = (torch.where(missing, self.fill, x) - self.centre) / self.scale
        if self.any_logarithmic:
            far = self.logarithmic & (scaled.abs() > 1)
            scaled = torch.where(far, scaled.sign() * (1 + scaled.abs().clamp(min=1).log()), scaled)
        return torch.cat([scaled, missing[:, self.indicated].to(scaled)], 1).float()
