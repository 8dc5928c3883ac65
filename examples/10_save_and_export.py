"""
Save, load, and take a model away
=================================

A knowledge base is a folder without pickle: safe to share, saved whole or not at all. A single
model is one safetensors file, or a plain torch module.
"""

# %%

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import make_moons

import ibcl

folder = Path(tempfile.mkdtemp())
learner = ibcl.IBCL(ibcl.networks.random_features(2, width=64, skip=True))
for number, shift in enumerate((0.0, 2.0)):
    x, y = make_moons(200, noise=0.2, random_state=number)
    learner.learn(x + shift, y, task=f"moons {number + 1}")

# %%
# Save and load; later tasks can be learnt by whoever loads it.

learner.save(folder / "moons.ibcl")
again = ibcl.load(folder / "moons.ibcl")
print(again)

# %%
# One model, as a file and as a module. Both answer the same.

model = again.model([0.5, 0.5])
model.save(folder / "half.safetensors")
alone = ibcl.load_model(folder / "half.safetensors")
module = model.module()

points = torch.tensor(x + 1.0, dtype=torch.float32)
with torch.no_grad():
    logits = module(points)[:, 0]
print(float((alone.predict_proba(points)[:, 1] - torch.sigmoid(logits)).abs().max()))

# %%

figure, axis = plt.subplots(figsize=(4.5, 3), layout="constrained")
grid = np.stack(np.meshgrid(np.linspace(-2, 5, 80), np.linspace(-2, 4, 80)), -1)
with torch.no_grad():
    field = torch.sigmoid(module(torch.tensor(grid.reshape(-1, 2), dtype=torch.float32)))
axis.contourf(grid[..., 0], grid[..., 1], field.reshape(80, 80), 10, cmap="RdBu", alpha=0.7)
axis.set(title="the exported module")
axis.grid(visible=False)
plt.show()
