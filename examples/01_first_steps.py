"""
Two tasks, and any model between them
=====================================

Two tasks in the plane: each has its own place and its own rule. They are learnt one after the
other; then a *preference*, one weight per task, becomes a model at once, with no data and no
training.
"""

# %%
# The tasks
# ---------
# Both tasks label points with a 0 or a 1. Where the two clouds meet, the tasks disagree: the first
# says 1 above its boundary, the second says 1 below its own.

import matplotlib.pyplot as plt
import numpy as np

import ibcl

generator = np.random.default_rng(0)
x_first = generator.normal([-1.0, 0.0], 0.8, size=(300, 2))
y_first = (x_first[:, 1] + 0.5 * x_first[:, 0] > -0.5).astype(int)
x_second = generator.normal([1.0, 0.0], 0.8, size=(300, 2))
y_second = (x_second[:, 1] - 0.5 * x_second[:, 0] < -0.5).astype(int)

# %%
# Learn them
# ----------
# A linear head on 128 fixed random features is not linear in x, but linear in its parameters, so
# that posteriors have full covariances and nothing is sampled. What else is needed is chosen on the
# first task, and said:

learner = ibcl.IBCL(ibcl.networks.random_features(2, width=128, skip=True))
learner.learn(x_first, y_first, task="first")
learner.learn(x_second, y_second, task="second")
for setting, reason in learner.choices.items():
    print(f"{setting}: {reason}")

# %%
# Turn preferences into models
# ----------------------------
# The colour is the probability of a 1. At both ends a model is the task's own; in between, an input
# is answered by the task it more probably comes from, and the preference moves the border.

grid = np.linspace(-3, 3, 81)
points = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2)
figure, axes = plt.subplots(1, 4, figsize=(9, 2.7), sharey=True, layout="constrained")
for axis, weight in zip(axes, (1.0, 0.7, 0.3, 0.0), strict=True):
    model = learner.model({"first": weight, "second": 1 - weight})
    probability = model.predict_proba(points)[:, 1].reshape(81, 81)
    axis.contourf(grid, grid, probability, np.linspace(0, 1, 11), cmap="RdBu", alpha=0.7)
    axis.contour(grid, grid, probability, [0.5], colors="black", linewidths=1)
    looks = {"cmap": "RdBu", "s": 16, "edgecolors": "white", "linewidths": 0.5}
    axis.scatter(*x_first[::6].T, c=y_first[::6], marker="o", **looks)
    axis.scatter(*x_second[::6].T, c=y_second[::6], marker="s", **looks)
    axis.set(title=f"first {weight:g}, second {1 - weight:g}", aspect="equal")
    axis.grid(visible=False)
plt.show()
