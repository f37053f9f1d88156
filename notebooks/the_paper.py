# %% [markdown]
# # The paper in twenty minutes
#
# *Intrinsic uncertainties and where to find them* (Farina, Phillips and Richmond, 2021) asks where the uncertainty of a trained network comes from. Its answer:
# from the choices of training. They are a model family F, initial weights θ₀, an algorithm A with settings h, and a number of iterations t. If you make one
# of them random, the trained weights are random, too.

# %%
import itertools

import numpy as np
from matplotlib import pyplot
from torch import nn
import wherefrom as wf

# %% [markdown]
# ## One weight
#
# A network with a single weight θ has a loss that is a curve, so we can draw it. Here f(x) = sin(θx) learns a signal of three tones. 16 trainings show where
# each choice alone sends θ:

# %%
from wherefrom.reproduce import figure1

posteriors = figure1.train(seed=0, progress=False)
for variable, words in (
    ("theta0", "four starts"),
    ("h", "one start, with and without momentum"),
    ("F", "one start, two families"),
):
    ends = sorted(round(shown.theta_t) for shown in figure1.members(posteriors, (variable,)))
    print(f"{words}: training ends near θ = {ends}")

# %% [markdown]
# Each of these choices reaches other valleys of the loss. t alone stays in one valley, and shows how far training moves there. The whole figure, with all
# combinations, is on [the page about the idea](../idea.md).
#
# ## The toy regression
#
# The data is ten noisy points of x³, between −4 and 4. What does a network predict beyond them?

# %%
random = np.random.default_rng(3)
x = random.uniform(-4, 4, size=(10, 1))
y = x[:, 0] ** 3 + 3 * random.normal(size=10)

# quick: EPOCHS = 5
EPOCHS = 600
training = wf.Training(
    model=lambda: nn.Sequential(nn.Linear(1, 100), nn.ReLU(), nn.Dropout(0.05), nn.Linear(100, 1)),
    algorithm=wf.Algorithm("sgd", lr=0.02, batch_size=6),
    epochs=EPOCHS,
)
posterior = wf.marginalise(
    training, (x, y), over=[wf.InitialCondition(10), wf.Iterations(wf.SWAG()), wf.Dropout()], seed=0
)

# %% [markdown]
# One set of trainings serves all eight subsets of t, θ₀ and M (the units that dropout keeps; the code calls it F):

# %% Eight panels of the toy regression, one for each subset of t, theta0 and M: the band of three standard deviations widens as more is random
line = np.linspace(-6, 6, 121)[:, None]
names = ("F", "t", "theta0")
figure, panels = pyplot.subplots(2, 4, figsize=(11, 5), sharex=True, sharey=True, layout="constrained")
subsets = list(itertools.chain.from_iterable(itertools.combinations(names, size) for size in range(4)))
scores = {}
for subset, panel in zip(subsets, panels.flat, strict=True):
    prediction = posterior.marginalising(*subset).predict(line, samples=100)
    mean, std = prediction.mean, prediction.std
    panel.fill_between(line[:, 0], mean - 3 * std, mean + 3 * std, alpha=0.3)
    panel.plot(line[:, 0], line[:, 0] ** 3, color="black", linewidth=1)
    panel.plot(x[:, 0], y, "o", color="C3", markersize=3)
    panel.set(title=", ".join(subset).replace("F", "M").replace("theta0", "θ₀") or "nothing", ylim=(-150, 150))
    scores[subset] = float((((prediction.mean - line[:, 0] ** 3).abs()) <= 3 * std + 1e-9).float().mean())
panels[0, 0]

# %% [markdown]
# The bands reach three standard deviations to each side. This much of the true curve between −6 and 6 lies in them:

# %%
for subset, share in scores.items():
    print(f"{', '.join(subset) or 'nothing':14} {share:.0%}")

# %% [markdown]
# Choices together contain more of the curve than any of them alone, but never all of it. That is the paper's point. Its networks have no noise. Real data has
# noise; then the likelihood comes first, and what is left open matters less ([measured on nine tables](../choosing.md#what-was-measured)).
#
# ## Where it comes from
#
# The paper does not split the variance by choice. Here every draw keeps its label, so we can:

# %% Stacked areas: the variance of each row by source, rows in order of their doubt
posterior.predict(line, samples=100).sources().plot()

# %% [markdown]
# We repeated [the figures](../reproduced.md), [the UCI tables](../uci.md) and [the CIFAR-10 study](../cifar10.md) of the paper. These pages say what agrees, and
# what does not.
