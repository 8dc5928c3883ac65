"""
Images, with a frozen backbone
==============================

Any torch module that is trained already can be the features: `ibcl.networks.with_backbone` freezes
it and puts a linear head on it. Only the head is learnt, so that posteriors are exact to compute
and every preference is free.
"""

# %%
# A small convolutional network, trained here on half of the digits' classes, stands for the
# backbone that you would load from torch, timm or transformers.

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import ibcl

torch.manual_seed(0)
pixels, digit = load_digits(return_X_y=True)
images = torch.tensor(pixels.reshape(-1, 1, 8, 8) / 16, dtype=torch.float32)
digits = torch.tensor(digit)

backbone = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(128, 64), nn.ReLU(),
)  # fmt: skip
head = nn.Linear(64, 5)
optimiser = torch.optim.Adam([*backbone.parameters(), *head.parameters()], lr=3e-3)
known = torch.nonzero(digits < 5).flatten()
for _ in range(120):
    batch = known[torch.randint(len(known), (64,))]
    loss = nn.functional.cross_entropy(head(backbone(images[batch])), digits[batch])
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

# %%
# Three tasks, two of them on digits that the backbone has never seen.

learner = ibcl.IBCL(ibcl.networks.with_backbone(backbone, features=64))
pairs = {"0 or 1": (0, 1), "5 or 6": (5, 6), "8 or 9": (8, 9)}
for name, (first, second) in pairs.items():
    rows = torch.nonzero((digits == first) | (digits == second)).flatten()
    learner.learn(images[rows[::2]], digits[rows[::2]] == second, task=name)

model = learner.model({"0 or 1": 0.2, "5 or 6": 0.4, "8 or 9": 0.4})
for name, (first, second) in pairs.items():
    rows = torch.nonzero((digits == first) | (digits == second)).flatten()[1::2]
    accuracy = (model.predict(images[rows]) == (digits[rows] == second)).float().mean()
    print(f"{name}: {accuracy:.3f}")

# %%
# Which task does an image belong to? The gate says so, and how far it is from all of them. Twos to
# fours and sevens belong to none.

strange = torch.isin(digits, torch.tensor([2, 3, 4, 7]))
figure, axis = plt.subplots(figsize=(6, 2.6), layout="constrained")
bins = np.linspace(0, 3, 61)
axis.hist(model.novelty(images[~strange]).numpy(), bins, alpha=0.6, label="digits of the tasks")
axis.hist(model.novelty(images[strange]).numpy(), bins, alpha=0.6, label="other digits")
axis.set(xlabel="novelty", ylabel="images")
axis.legend(frameon=False)
plt.show()
