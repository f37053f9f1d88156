# %% [markdown]
# # A pretrained backbone
#
# Train a large network once, and many small heads on top of it. All members share the frozen backbone: in memory, in files, and in computing time, because its
# features are computed once. Here the backbone is small. It is trained first, on the digits 0 to 6, so that you need not download anything.

# %%
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
import wherefrom as wf

digits = load_digits()
images = (digits.images / 16).astype(np.float32)[:, None]  # (rows, 1, 8, 8)
label = digits.target

# quick: PRETRAINING = 1
PRETRAINING = 30
torch.manual_seed(0)
backbone = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(32 * 16, 64),
    nn.ReLU(),
)
head = nn.Linear(64, 7)
x, y = torch.tensor(images[label < 7]), torch.tensor(label[label < 7])
optimiser = torch.optim.Adam([*backbone.parameters(), *head.parameters()], lr=0.003)
for _ in range(PRETRAINING):
    for rows in torch.randperm(len(x)).split(64):
        optimiser.zero_grad()
        nn.functional.cross_entropy(head(backbone(x[rows])), y[rows]).backward()
        optimiser.step()
backbone.requires_grad_(False).eval()
print(f"accuracy on its own digits: {(head(backbone(x)).argmax(1) == y).float().mean():.3f}")

# %% [markdown]
# ## Other digits, few labels
#
# The new task has the digits 7, 8 and 9, which the backbone has never seen, with 10 labels of each. Only the heads are trained: 16 of them, each with other
# initial weights and on another bootstrap sample of the 30 images.

# %%
random = np.random.default_rng(0)
few = np.concatenate([random.choice(np.flatnonzero(label == digit), 10, replace=False) for digit in (7, 8, 9)])
rest = np.setdiff1d(np.flatnonzero(label >= 7), few)

# quick: EPOCHS = 3
EPOCHS = 100
training = wf.Training(
    model=lambda: nn.Sequential(backbone, nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 3)),
    algorithm=wf.Algorithm("adam", lr=0.01, batch_size=10),
    epochs=EPOCHS,
    likelihood=wf.Classification(),
    standardise=False,
)
posterior = wf.marginalise(
    training, (images[few], label[few]), seed=0, over=[wf.Jointly(wf.InitialCondition(), wf.Resample(), draws=16)]
)
posterior

# %%
prediction = posterior.predict(images[rest])
one = posterior.marginalising().predict(images[rest])
print(f"16 heads: accuracy {prediction.accuracy(label[rest]):.3f}, NLL {prediction.nll(label[rest]):.3f}")
print(f"one head: accuracy {one.accuracy(label[rest]):.3f}, NLL {one.nll(label[rest]):.3f}")

# %% Accuracy against confidence of the 16 heads: the points scatter around the diagonal within their bars
prediction.plot("reliability", label[rest])

# %% [markdown]
# ## Images of another kind
#
# The digits 0 to 6 belong to none of the three classes, so any answer is wrong. Does the doubt show it? The AUROC is the probability that an image of another
# kind has a larger doubt than one of the three classes.

# %%
other = images[label < 7]
strange, strange_to_one = posterior.predict(other), posterior.marginalising().predict(other)
print(f"16 heads, by entropy:      {prediction.auroc(strange, by='entropy'):.2f}")
print(f"16 heads, by disagreement: {prediction.auroc(strange, by='mutual_information'):.2f}")
print(f"one head, by entropy:      {one.auroc(strange_to_one, by='entropy'):.2f}")

# %% [markdown]
# 0.5 would be chance. One head is worse than that: it is surer about digits that it cannot know. 16 heads notice them, but only a little, because all use the
# same features. If you must notice such images, train several backbones too ([which doubt finds unusual rows](../choosing.md#which-doubt-finds-unusual-rows)).
#
# ## One backbone in the files
#
# The files hold the backbone once, for any number of heads.

# %%
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())
posterior.save(folder)
size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
print(
    f"{len(posterior)} members: {size / 1000:.0f} kB; the backbone alone has {sum(p.numel() for p in backbone.parameters()) * 4 / 1000:.0f} kB"
)
