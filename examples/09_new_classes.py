"""
New classes with every task
===========================

Tasks may have classes of their own: here the digits come two at a time, and the model must answer
among all ten without being told the task. A gate from the classes' moments does most of the work.
"""

# %%
# Five tasks of two digits each, learnt one by one.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import ConfusionMatrixDisplay

import ibcl

x, digit = load_digits(return_X_y=True)
x = x / 16 - 0.3
train, test = np.arange(len(x)) % 2 == 0, np.arange(len(x)) % 2 == 1
learner = ibcl.IBCL(ibcl.networks.linear(64, outputs=10))
for first in range(0, 10, 2):
    rows = train & np.isin(digit, (first, first + 1))
    learner.learn(x[rows], digit[rows], task=f"{first} and {first + 1}")

# %%
# All ten classes, first with equal preferences, then for somebody who only meets the last tasks.

fair = learner.model([0.2] * 5)
late = learner.model([0.05, 0.05, 0.1, 0.4, 0.4])
print(f"all digits: {np.mean(fair.predict(x[test]) == digit[test]):.3f}")
rows = test & (digit >= 6)
print(f"6 to 9, equal preferences: {np.mean(fair.predict(x[rows]) == digit[rows]):.3f}")
print(f"6 to 9, preferred:         {np.mean(late.predict(x[rows]) == digit[rows]):.3f}")

figure, axis = plt.subplots(figsize=(4, 4), layout="constrained")
ConfusionMatrixDisplay.from_predictions(
    digit[test], fair.predict(x[test]), ax=axis, colorbar=False, cmap="Blues"
)
axis.grid(visible=False)
plt.show()
