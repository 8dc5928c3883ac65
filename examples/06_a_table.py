"""
A table with names, gaps and categories
=======================================

`ibcl.IBCLRegressor` and `ibcl.IBCLClassifier` take data frames as they are: numbers are
standardised on the first task, texts become categories, gaps are filled and marked. Predictions
come back in the target's own units.
"""

# %%
# Diabetes progression, learnt clinic by clinic
# ---------------------------------------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

import ibcl

frame = load_diabetes(as_frame=True, scaled=False).frame
frame["sex"] = frame["sex"].map({1.0: "one", 2.0: "two"})
frame.loc[::17, "bp"] = np.nan
clinic = np.where(frame["age"] < 50, "young", "old")

regressor = ibcl.IBCLRegressor()
for name in ("young", "old"):
    rows = frame[clinic == name]
    regressor.partial_fit(rows.drop(columns="target"), rows["target"], task=name)

# %%
# Any balance between the clinics, with bounds
# --------------------------------------------
# Here the clinics nearly agree, so that the credal bounds are narrow: what is uncertain is the
# disease, not the balance.

patients = frame.drop(columns="target").iloc[:12]
print(regressor.predict(patients, preference={"young": 0.9, "old": 0.1}).round(0))

model = regressor.learner_.model({"young": 0.5, "old": 0.5})
middle = model.predict(patients)
lower, upper = model.credal_bounds(patients)
deviation = np.sqrt(model.uncertainty(patients).total)

figure, axis = plt.subplots(figsize=(6, 2.8), layout="constrained")
axis.errorbar(
    range(12), middle, deviation, fmt="D", color="k", linewidth=0.8, label="prediction, deviation"
)
axis.vlines(range(12), lower, upper, linewidth=7, alpha=0.4, label="credal bounds")
axis.scatter(range(12), frame["target"].iloc[:12], marker="x", color="#d55e00", label="measured")
axis.set(xlabel="patient", ylabel="disease progression")
axis.legend(frameon=False)
plt.show()
