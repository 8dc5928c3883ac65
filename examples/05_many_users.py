"""
Ten thousand users at once
==========================

With routed evidence a user is a handful of numbers. Answers for all users and rows are two matrix
products and a division.
"""

# %%
# Three tasks in the plane. Where their inputs overlap their rules contradict each other.

import matplotlib.pyplot as plt
import numpy as np

import ibcl

generator = np.random.default_rng(0)
learner = ibcl.IBCL(ibcl.networks.linear(2))
for number, angle in enumerate((0.5, 2.6, 4.7)):
    centre = 1.2 * np.array([np.cos(angle), np.sin(angle)])
    x = generator.normal(centre, 0.8, size=(200, 2))
    across = (x - centre) @ [np.cos(angle + 1.2), np.sin(angle + 1.2)]
    learner.learn(x, (across > 0).astype(int), task=f"task {number + 1}")

# %%
# Ten thousand preferences, and the answers to 1,681 points: users × rows × classes.

grid = np.linspace(-3, 3, 41)
points = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2)
users = ibcl.sample_preferences(tasks=3, n=10_000, seed=0)
answers = learner.predict_many(points, users)
print(answers.shape)

# %%
# The same as one model per user, but without making ten thousand models:

one = learner.model(users[7]).predict_proba(points)
print("largest difference:", float(np.abs(answers[7] - one).max()))

# %%
# Where do users disagree? The share of users whose model says 1.

agreement = (answers[:, :, 1] > 0.5).mean(0).reshape(41, 41)
figure, axis = plt.subplots(figsize=(4.4, 3.6), layout="constrained")
drawn = axis.contourf(grid, grid, 100 * agreement, np.linspace(0, 100, 11), cmap="RdBu")
axis.contour(grid, grid, agreement, [0.02, 0.98], colors="k", linewidths=0.6)
figure.colorbar(drawn, label="users who say 1, in %")
axis.set(aspect="equal", title="between the black lines users disagree")
axis.grid(visible=False)
plt.show()
