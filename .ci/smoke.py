"""A little of everything that an installed ibcl does, in the folder it is started in."""

from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from typer.testing import CliRunner

import ibcl
from ibcl.cli import app


def run(*arguments: str) -> str:
    """Run a command that must succeed."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, (arguments, result.output)
    return result.output


def main() -> None:
    """Learn, pool, route, predict, save, load and serve."""
    x = torch.randn(120, 4, generator=torch.Generator().manual_seed(0))
    for kind in ("linear", "mlp"):
        for pooling in ("routed", "wasserstein", "mixture"):
            learner = ibcl.IBCL(getattr(ibcl.networks, kind)(4), pooling=pooling)
            learner.learn(x, x[:, 0] > 0, task="a")
            learner.learn(x, x[:, 1] > 0, task="b")
            model = learner.model([0.3, 0.7])
            lower, upper = model.credal_bounds(x)
            answer = model.predict_proba(x)
            assert bool((lower <= answer + 1e-5).all() and (answer <= upper + 1e-5).all())
            learner.save(f"{kind}-{pooling}")
            loaded = ibcl.load(f"{kind}-{pooling}")
            assert torch.equal(loaded.model([0.3, 0.7]).predict_proba(x), answer)
    frame = pd.DataFrame(x.numpy(), columns=list("abcd")).assign(town=["Rome", "Oslo"] * 60)
    labels = np.where(x[:, 0] > 0, "yes", "no")
    estimator = ibcl.IBCLClassifier().fit(frame, labels)
    assert estimator.score(frame, labels) > 0.9
    thirds = np.array(["low", "middle", "high"])[np.digitize(x[:, 0], [-0.5, 0.5])]
    assert ibcl.IBCLClassifier().fit(frame, thirds).score(frame, thirds) > 0.8
    values = x.numpy()
    assert ibcl.IBCLRegressor().fit(values, values[:, 0]).score(values, values[:, 0]) > 0.9
    table = frame.assign(y=labels)
    for ending, write in ((".csv", table.to_csv), (".parquet", table.to_parquet)):
        write(f"table{ending}", index=False)
        run("learn", f"kb{ending}", f"table{ending}", "--label", "y", "--width", "8")
        run("predict", f"kb{ending}", f"table{ending}", "--preference", "1", "--output", "o.csv")
        Path("o.csv").unlink()
    run("--help")
    run("show", "kb.csv")
    from fastapi.testclient import TestClient

    from ibcl.serve import Settings, create_app

    with TestClient(create_app(Settings(Path("kb.csv")))) as client:
        assert client.get("/v1/tasks").json()["tasks"] == ["table"]
    packages = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "pydantic", "safetensors")
    print("It works with", ", ".join(f"{name} {version(name)}" for name in packages))


if __name__ == "__main__":
    main()
