# %% [markdown]
# # Your own network, with all choices open
#
# Train a network twice and you get two different answers. Which training choice causes the difference? This notebook treats all of them as uncertain for your
# own network, and splits the variance of its predictions by choice.

# %%
import numpy as np
import torch
from torch import nn
import wherefrom as wf

random = np.random.default_rng(0)
x = random.uniform(-2, 2, size=(400, 2))
x = x[np.abs(x[:, 0]) > 0.6]  # a part of the inputs was never seen
y = np.sin(3 * x[:, 0]) + 0.5 * x[:, 1] + 0.2 * random.normal(size=len(x))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(2, 32), nn.Linear(32, 32), nn.Linear(32, 1)
        self.drop = nn.Dropout(0.05)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.last(self.drop(h + torch.tanh(self.second(h))))


# %% [markdown]
# First describe one training, as usual:

# %%
# quick: EPOCHS = 4
EPOCHS = 200
training = wf.Training(
    model=Residual,
    algorithm=wf.Algorithm("adam", lr=0.01, batch_size=30),
    epochs=EPOCHS,
    likelihood=wf.Regression(noise="fit"),
)

# %% [markdown]
# Then treat its choices as uncertain. The first three are crossed: 3 × 3 × 4 = 36 trainings, in one program. SWAG and dropout need no further trainings.

# %%
posterior = wf.marginalise(
    training,
    (x, y),
    seed=0,
    over=[
        wf.InitialCondition(3),  # theta0: where training starts
        wf.Hyperparameters(3, lr=wf.LogUniform(0.003, 0.03)),  # h: the learning rate
        wf.Resample(4),  # D: which rows there were
        wf.Iterations(wf.SWAG(rank=10)),  # t: when it stops
        wf.Dropout(),  # F: which units are kept
    ],
)
posterior

# %% [markdown]
# ## Where each choice matters
#
# The predictions along a line through the inputs, with the gap in the middle:

# %%
line = np.column_stack([np.linspace(-2, 2, 81), np.zeros(81)])
prediction = posterior.predict(line, samples=30)
sources = prediction.sources()
print(sources)

# %% Above, the mean with a 95% interval, which widens in the gap without rows; below, the variance of each source on a log scale
from matplotlib import pyplot

figure, (top, bottom) = pyplot.subplots(2, 1, figsize=(7, 6), sharex=True, layout="constrained")
low, high = prediction.interval(0.95)
top.fill_between(line[:, 0], low, high, alpha=0.3, label="95% interval")
top.plot(line[:, 0], prediction.mean, label="mean")
top.plot(x[:, 0], y - 0.5 * x[:, 1], ".", color="black", markersize=3, label="rows, at x₂ = 0")
top.legend(frameon=False)
for name, colour in zip(("theta0", "h", "D", "t", "F"), ("C0", "C1", "C2", "C3", "C4"), strict=True):
    bottom.plot(line[:, 0], sources.variance[name], color=colour, label=name)
bottom.set(xlabel="x₁", ylabel="variance by source", yscale="log", ylim=(1e-5, None))
bottom.legend(frameon=False, ncols=5)
bottom

# %% [markdown]
# ## What each choice is worth
#
# One set of trainings serves every subset of the choices. These are scores on new rows:

# %%
x_new = random.uniform(-2, 2, size=(400, 2))
y_new = np.sin(3 * x_new[:, 0]) + 0.5 * x_new[:, 1] + 0.2 * random.normal(size=400)
for names in ((), ("theta0",), ("h",), ("D",), ("t",), ("F",), ("theta0", "h", "D"), ("theta0", "h", "D", "t", "F")):
    part = posterior.marginalising(*names).predict(x_new, samples=30)
    print(
        f"{', '.join(names) or 'nothing':22} NLL {part.nll(y_new):6.2f}   95% interval holds {part.coverage(y_new, 0.95):.0%}"
    )

# %% [markdown]
# Other initial weights and other rows help most, because such networks disagree where there are no rows. t and F add spread where there are rows, too. The
# noise is fitted again for each line, on held-out rows, and is then smaller.
#
# ## What to spend on next

# %%
print(posterior.advise(x_new[:50]))
