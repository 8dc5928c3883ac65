"""
How sure is it? Regions and credal bounds
=========================================

Every model comes with the smallest region of parameters that holds the mass 1 - alpha of its
distribution, and every prediction with lower and upper probabilities over the credal set.
"""

# %%
# Two tasks on one axis that half agree.

import matplotlib.pyplot as plt
import numpy as np

import ibcl

generator = np.random.default_rng(1)
x = generator.uniform(-3, 3, size=(200, 1))
learner = ibcl.IBCL(ibcl.networks.linear(1), pooling="evidence", alpha=0.05)
for name, boundary in (("left", -1.0), ("right", 1.0)):
    y = generator.random(200) < 1 / (1 + np.exp(-2 * (x[:, 0] - boundary)))
    learner.learn(x, y.astype(int), task=name)
model = learner.model({"left": 0.5, "right": 0.5})

# %%
# The region is an ellipse here, with two parameters: slope and bias. Its samples are models, all of
# them inside; the bounds hold the prediction of every task and of the model itself.

line = np.linspace(-3, 3, 121)[:, None]
bounds = model.credal_bounds(line)
thetas = model.region.sample(300)
assert bool(model.region.contains(thetas).all())

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.scatter(*thetas.T.numpy(), s=6, alpha=0.5, label="models of the region")
for task, marker in (("left", "<"), ("right", ">")):
    mean = learner.model(task).theta
    left.scatter(*mean.numpy(), marker=marker, s=60, label=f"task {task!r}", zorder=3)
left.scatter(*model.theta.numpy(), marker="D", s=50, color="k", label="mean model", zorder=3)
left.set(xlabel="slope", ylabel="bias")
left.legend(frameon=False)
right.fill_between(
    line[:, 0], bounds.lower[:, 1], bounds.upper[:, 1], alpha=0.25, label="credal bounds"
)
right.plot(line[:, 0], model.predict_proba(line)[:, 1], color="k", label="prediction")
right.set(xlabel="x", ylabel="probability of class 1")
right.legend(frameon=False)
plt.show()
