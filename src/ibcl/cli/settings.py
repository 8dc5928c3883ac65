"""What a knowledge base is made with: fixed when the first task is learnt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from ibcl.cli.options import Inference, Network, Pooling

if TYPE_CHECKING:
    from ibcl import IBCL


class Settings(BaseModel):
    """Settings of a knowledge base; None where a setting does not apply."""

    model_config = ConfigDict(frozen=True)

    network: Network
    hidden: tuple[int, ...] | None
    width: int | None
    inference: Inference
    pooling: Pooling
    priors: tuple[float, ...]
    d: float
    alpha: float
    epochs: int | None
    isolated: bool
    regression: bool
    noise: float | None
    seed: int

    @classmethod
    def choose(cls, given: Mapping[str, Any]) -> Settings:
        """Fill in what the user did not give.

        A head that is linear in its parameters gets what works best for it: full covariances,
        tasks learnt apart, evidence pooling. Other networks get the paper's setting.

        Examples
        --------
        >>> Settings.choose({}).pooling, Settings.choose({"network": "mlp"}).pooling
        ('evidence', 'wasserstein')
        """
        network = given.get("network", "random_features")
        inference = given.get("inference", "mean-field" if network == "mlp" else "dense")
        pooling = given.get("pooling", "evidence" if inference == "dense" else "wasserstein")
        regression = given.get("regression", False)
        if network == "mlp" and inference == "dense":
            raise ValueError(
                "--inference dense needs --network linear or random_features; an mlp is learnt "
                "with --inference mean-field"
            )
        applies = {
            "hidden": ("--network mlp", network == "mlp"),
            "width": ("--network random_features", network == "random_features"),
            "epochs": ("--inference mean-field", inference == "mean-field"),
            "noise": ("--regression", regression),
        }
        for name, (condition, holds) in applies.items():
            if name in given and not holds:
                raise ValueError(f"--{name} only means something with {condition}")
        return cls(
            network=network,
            hidden=given.get("hidden", (64,)) if network == "mlp" else None,
            width=given.get("width", 256) if network == "random_features" else None,
            inference=inference,
            pooling=pooling,
            priors=given.get("priors", (2.5,)),
            # Evidence is exact only if no posterior is replaced by its neighbour.
            d=given.get("d", 0.0 if pooling == "evidence" else 0.012),
            alpha=given.get("alpha", 0.01),
            epochs=given.get("epochs", 20) if inference == "mean-field" else None,
            isolated=given.get("isolated", inference == "dense"),
            regression=regression,
            noise=given.get("noise", 0.3) if regression else None,
            seed=given.get("seed", 0),
        )

    def check(self, given: Mapping[str, Any]) -> None:
        """Refuse options that say otherwise than the knowledge base."""
        for name, value in given.items():
            fixed = getattr(self, name)
            if fixed != value:
                raise ValueError(
                    f"The knowledge base was made with {name} = {_text(fixed)}, so {name} = "
                    f"{_text(value)} cannot be used now; leave the option out, or start another "
                    "knowledge base"
                )

    def learner(self, inputs: int, classes: int | None) -> IBCL:
        """Return a learner with these settings that has learnt nothing yet."""
        import ibcl
        from ibcl import networks

        outputs = 1 if classes is None or classes == 2 else classes
        if self.network == "linear":
            network = networks.linear(inputs, outputs)
        elif self.network == "mlp":
            network = networks.mlp(inputs, list(self.hidden or ()), outputs)
        else:
            network = networks.random_features(inputs, self.width or 0, outputs, seed=self.seed)
        return ibcl.IBCL(
            network,
            priors=list(self.priors),
            inference=ibcl.DenseVI() if self.epochs is None else ibcl.MeanFieldVI(self.epochs),
            pooling=self.pooling,
            d=self.d,
            alpha=self.alpha,
            seed=self.seed,
            likelihood="auto" if self.noise is None else ibcl.Normal(self.noise),
            continual=not self.isolated,
        )


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()
