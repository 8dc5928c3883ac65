"""
Routed evidence, one head, and retraining
=========================================

Five tasks on handwritten digits, each asking whether a digit is even or odd. Thirty users want
thirty balances between them. Three ways to serve them, all with the same linear head and the same
inference:

* *one head*: the tasks' evidence pooled into one parameter vector per preference;
* *retrained*: all data of all tasks kept, and the head learnt anew for every preference;
* *routed evidence*: one head per task, supported by the others, and a gate that recognises tasks.
"""

# %%
# Learn the tasks once
# --------------------

import matplotlib.pyplot as plt
import numpy as np

import ibcl
from ibcl.experiments.benchmarks import load


def prepare(seed):
    """Tasks as (name, train, test), centred and scaled on the first one."""
    tasks = load("digits", seed=seed).tasks
    centre = tasks[0].train.x.mean(0)
    scale = (tasks[0].train.x - centre).std()
    return [
        (
            task.name,
            ((task.train.x - centre) / scale, task.train.y),
            ((task.test.x - centre) / scale, task.test.y),
        )
        for task in tasks
    ]


def learn(tasks, pooling):
    learner = ibcl.IBCL(ibcl.networks.linear(64), pooling=pooling, independent=True, d=0)
    for name, (x, y), _ in tasks:
        learner.learn(x, y, task=name)
    return learner


def retrain(tasks, weights, prior):
    """Learn one head from all data, each sample weighted as the preference says."""
    rows = np.concatenate([x for _, (x, _), _ in tasks])
    labels = np.concatenate([y for _, (_, y), _ in tasks])
    counts = [len(y) for _, (_, y), _ in tasks]
    each = np.repeat(len(tasks) * weights, counts)
    learner = ibcl.IBCL(ibcl.networks.linear(64), priors=[prior], pooling="evidence")
    learner.learn(rows[each > 0], labels[each > 0], sample_weight=each[each > 0])
    return learner.model([1.0])


def score(model, tasks, weights):
    """Preference-weighted test accuracy, in percent."""
    accuracies = [np.mean(model.predict(x) == y) for _, _, (x, y) in tasks]
    return 100 * float(weights @ accuracies)


# %%
# Ask for thirty preferences
# --------------------------
# Three seeds of held-out data with ten preferences each, the paper's: uniform numbers divided by
# their sum.

scores = {"one head": [], "retrained for each preference": [], "routed evidence": []}
for seed in range(3):
    tasks = prepare(seed)
    one, routed = learn(tasks, "evidence"), learn(tasks, "routed")
    prior = float(one.knowledge.priors[0].std[0])
    for weights in ibcl.sample_preferences(len(tasks), 10, seed=seed):
        scores["one head"].append(score(one.model(weights), tasks, weights))
        scores["routed evidence"].append(score(routed.model(weights), tasks, weights))
        retrained = retrain(tasks, weights, prior)
        scores["retrained for each preference"].append(score(retrained, tasks, weights))

# %%
# Look
# ----
# A point is a preference, a diamond the mean. Retraining looks at all data again for every
# preference; the other two look at none. Routing uses which task each *training* sample came from,
# which plain retraining does not; at test time neither is told.

figure, axis = plt.subplots(figsize=(7, 2.3), layout="constrained")
for position, values in enumerate(scores.values()):
    jitter = np.random.default_rng(0).uniform(-0.15, 0.15, len(values))
    colour = ("#d55e00", "#000000", "#0072b2")[position]
    axis.scatter(values, position + jitter, s=14, color=colour, alpha=0.5)
    axis.scatter(np.mean(values), position, marker="D", s=60, color=colour, edgecolors="white")
    axis.annotate(
        f"{np.mean(values):.1f} %", (np.mean(values), position + 0.27), ha="center", color=colour
    )
axis.set_yticks(range(3), list(scores))
axis.set(xlabel="preference-weighted test accuracy in %", ylim=(-0.5, 2.6))
plt.show()
