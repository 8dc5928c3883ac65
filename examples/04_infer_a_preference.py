"""
Whose preference is it? Infer it from a few inputs
==================================================

Nobody knows their preference as a vector. But it is the share of each task in what somebody looks
at, and the gate knows the tasks' densities: a few inputs, even without labels, give it back.
"""

# %%
# Five tasks on the digits.

import matplotlib.pyplot as plt
import numpy as np

import ibcl
from ibcl.experiments.benchmarks import load

tasks = load("digits").tasks
learner = ibcl.IBCL(ibcl.networks.random_features(64, width=256))
for task in tasks:
    learner.learn(task.train.x - 0.3, task.train.y, task=task.name)

# %%
# A user looks mostly at zeros and ones. More and more of what they looked at is shown to the
# learner, without any label.

wanted = np.array([0.6, 0.3, 0.1, 0.0, 0.0])
generator = np.random.default_rng(0)
source = generator.choice(len(tasks), size=150, p=wanted)
seen = np.stack([generator.permutation(tasks[task].test.x)[0] for task in source]) - 0.3

sizes = [5, 10, 20, 40, 80, 150]
found = [learner.infer_preference(seen[:size]) for size in sizes]
print("after 150 inputs:", found[-1])

# %%
# The band is one standard deviation to either side, which comes with every inferred preference.

figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
for position, task in enumerate(learner.tasks[:3]):
    middle = np.array([preference[task] for preference in found])
    spread = np.array([preference.std[task] for preference in found])
    (drawn,) = axis.plot(sizes, middle, marker="os^"[position], label=f"{task}, inferred")
    axis.fill_between(sizes, middle - spread, middle + spread, alpha=0.2, color=drawn.get_color())
    axis.axhline(wanted[position], linestyle="dotted", color=drawn.get_color())
axis.set(xscale="log", xlabel="inputs seen", ylabel="weight", xticks=sizes, xticklabels=sizes)
axis.minorticks_off()
axis.legend(frameon=False, title="dotted: the true weights")
plt.show()
