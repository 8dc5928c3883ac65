"""
Ten thousand users at once
==========================

With routed evidence a user is a handful of numbers. Answers for all users and rows are two matrix
products and a division.
"""

# %%
# Learn three tasks on wines: which of the three growers is it?

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

import ibcl

x, grower = load_wine(return_X_y=True)
x = StandardScaler().fit_transform(x)
learner = ibcl.IBCL(ibcl.networks.linear(13))
for number in range(3):
    others = np.flatnonzero(grower != number)
    learner.learn(x[others], (grower[others] > 1).astype(int), task=f"without {number}")

# %%
# Ten thousand preferences, and the answers to all wines: users × rows × classes.

users = ibcl.sample_preferences(3, 10_000, seed=0)
answers = learner.predict_many(x, users)
print(answers.shape)

# %%
# The same as one model a user, but without making ten thousand models:

one = learner.model(users[7]).predict_proba(x)
print("largest difference:", float(np.abs(answers[7] - one).max()))

# %%
# Where do users disagree? The share of users that say class 1, for every wine.

agreement = np.sort((answers[:, :, 1] > 0.5).mean(0))
figure, axis = plt.subplots(figsize=(6, 2.6), layout="constrained")
axis.plot(100 * agreement)
axis.set(xlabel="wines, in order", ylabel="users who say 1, in %")
plt.show()
