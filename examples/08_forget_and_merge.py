"""
Forget a task, merge two knowledge bases
========================================

Independent tasks leave evidence of their own behind. Dropping one forgets it exactly, as
if it had never been seen, and hospitals that may not share data can share what they learnt.
"""

# %%
# Two hospitals with the same settings, and data that never meet.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

import ibcl

x, y = load_breast_cancer(return_X_y=True)
x = StandardScaler().fit_transform(x)
parts = dict(zip(("north", "south", "west"), np.array_split(np.arange(len(x)), 3), strict=True))


def hospital(*names):
    """A learner of these hospitals' patients."""
    learner = ibcl.IBCL(ibcl.networks.linear(30), priors=[0.3], pooling="routed", independent=True)
    for name in names:
        learner.learn(x[parts[name]], y[parts[name]], task=name)
    return learner


# %%
# Merge
# -----
# The union is what one learner of all the data would have been.

merged = ibcl.merge(hospital("north", "south"), hospital("west"))
together = hospital("north", "south", "west")
weights = {"north": 0.2, "south": 0.5, "west": 0.3}
ours, theirs = (learner.model(weights).predict_proba(x) for learner in (merged, together))
print("merged or learnt together, largest difference:", float(np.abs(ours - theirs).max()))

# %%
# Forget
# ------

merged.forget("south")
without = hospital("north", "west")
half = {"north": 0.5, "west": 0.5}
ours, theirs = (learner.model(half).predict_proba(x) for learner in (merged, without))
print("forgotten or never learnt, largest difference:", float(np.abs(ours - theirs).max()))

figure, axis = plt.subplots(figsize=(3.4, 3.2), layout="constrained")
axis.scatter(theirs[:, 1], ours[:, 1], s=8)
axis.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
axis.set(xlabel="never learnt", ylabel="forgotten", title="probability of class 1", aspect="equal")
plt.show()
