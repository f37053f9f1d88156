"""Training on classes: labels of every kind, losses against a plain torch loop, files, members from elsewhere."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Uniform

import wherefrom as wf
from conftest import mlp, training
from wherefrom.training import streams
from wherefrom.training.data import as_classes

RANDOM = np.random.default_rng(11)
X = RANDOM.normal(size=(64, 4))
NUMBERS = np.digitize(X[:, 0] + 0.3 * RANDOM.normal(size=64), [-0.5, 0.6])
WORDS = np.array(["benign", "malignant", "unclear"])[NUMBERS]


def doubtful(**changes) -> wf.Training:
    likelihood = wf.Classification(**{k: changes.pop(k) for k in list(changes) if k in LIKELIHOOD})
    return training(changes.pop("model", mlp(outputs=3, rate=0.0)), likelihood=likelihood, **changes)


LIKELIHOOD = ("classes", "label_smoothing", "class_weights")


def fit(own: wf.Training, y=WORDS, over=(), **how) -> wf.Posterior:
    return wf.marginalise(own, (X, y), over or [wf.InitialCondition(2)], seed=3, progress=False, **how)


# ---------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("y", "labels"),
    [
        ([2, 0, 5, 0], (0, 2, 5)),
        (["b", "a", "c", "a"], ("a", "b", "c")),
        ([True, False, True, False], (False, True)),
        (np.array([1.0, 3.0, 1.0, 2.0]), (1, 2, 3)),
        (torch.tensor([1, 0, 2, 0]), (0, 1, 2)),
        (np.array([[1], [0], [2], [0]]), (0, 1, 2)),
        (pd.Series(["x", "y", "x", "z"], dtype="category"), ("x", "y", "z")),
        (pd.DataFrame({"y": ["x", "y", "x", "z"]}), ("x", "y", "z")),
        (np.array([1, np.int64(2), 1, 3], dtype=object), (1, 2, 3)),
        (torch.tensor([1.0, 0.0, 1.0], dtype=torch.bfloat16).tolist(), (0, 1)),
    ],
    ids=["numbers", "words", "truth", "whole floats", "tensor", "column", "categories", "frame", "objects", "floats"],
)
def test_labels_of_every_kind(y, labels):
    numbers, found = as_classes(y, None)
    assert found == labels
    flat = np.asarray(y).reshape(-1)
    assert [found[int(k)] for k in numbers] == flat.tolist()


@pytest.mark.parametrize(
    ("y", "known", "said"),
    [
        ([0.5, 1.0], None, "0.5 in row 0, which is no class"),
        ([1.0, math.nan], None, "missing or infinite values, the first in row 1"),
        (["a", None, "b"], None, "1 missing values, the first in row 1"),
        (["a", 1], None, "y mixes int and str"),
        (np.array(["a", 1], dtype=object), None, "y mixes int and str"),
        ([True, 2, 0], None, "y mixes bool and int"),
        (pd.Series([True, None, False], dtype="boolean"), None, "1 missing values, the first in row 1"),
        (pd.Series(["a", None, "b"], dtype="string"), None, "1 missing values, the first in row 1"),
        ([0, 1e300], None, "1e.300 in row 1, which is no class"),
        ([["a"], ["b", "c"]], None, "inhomogeneous|shape|kind"),
        ([1, 1, 1], None, "y holds only 1"),
        (np.eye(3), None, "argmax"),
        ([0, 3], 3, "y is 3 in row 1, which is none of the classes 0, 1, 2"),
        (np.arange(500), None, "500 different values in 500 rows: is it a quantity"),
    ],
)
def test_what_is_no_class_is_refused(y, known, said):
    with pytest.raises(ValueError, match=said):
        as_classes(y, known)


def test_labels_come_back():
    posterior = fit(doubtful())
    assert posterior.schema.classes == ("benign", "malignant", "unclear")
    assert set(posterior.predict(X).predicted) <= set(WORDS)
    numbers = fit(doubtful(), NUMBERS)
    torch.testing.assert_close(numbers.predict(X).probabilities, posterior.predict(X).probabilities)
    assert numbers.predict(X).nll(NUMBERS) == posterior.predict(X).nll(WORDS)


def test_classes_that_y_lacks_have_their_outputs():
    few = np.where(NUMBERS == 1, 0, NUMBERS)
    posterior = fit(doubtful(classes=3), few)
    assert posterior.predict(X).probabilities.shape == (64, 3)
    with pytest.raises(ValueError, match=r"3 outputs, but there are 2 classes.*classes="):
        fit(doubtful(), few)


def test_the_order_of_named_classes_is_that_of_the_outputs():
    named = fit(doubtful(classes=["unclear", "malignant", "benign"])).predict(X)
    assert named.classes == ("unclear", "malignant", "benign")
    assert named.accuracy(WORDS) > 0.6


# ---------------------------------------------------------------------- training


def by_hand(model, seed: int, y: np.ndarray, batch: int, epochs: int, lr: float, weight=None, smoothing=0.0):
    """One member as anybody would train it, with the batches that its stream gives."""
    with streams.torch_seeded(seed, "theta0", 0):
        network = model().double()
    x = torch.from_numpy((X - X.mean(0)) / X.std(0))
    labels = torch.from_numpy(y).long()
    optimiser = torch.optim.SGD(network.parameters(), lr=lr)
    key = np.array([streams.key(seed, "order", 0)], dtype=np.uint64)
    own = None if weight is None else torch.tensor(weight, dtype=torch.float64)[labels]
    for epoch in range(epochs):
        order = torch.from_numpy(streams.permutations(key, epoch, len(x))[0].copy())
        for rows in order.split(batch):
            losses = F.cross_entropy(network(x[rows]), labels[rows], reduction="none", label_smoothing=smoothing)
            loss = losses.mean() if own is None else (losses * own[rows]).mean() / own.mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return torch.cat([p.detach().reshape(-1) for p in network.parameters()])


@pytest.mark.parametrize(
    "settings",
    [{}, {"label_smoothing": 0.2}, {"class_weights": (1.0, 3.0, 0.5)}],
    ids=["plain", "smoothed", "weighted"],
)
@pytest.mark.parametrize("engine", ["torch", "native"])
def test_a_member_is_what_a_plain_loop_makes_of_it(settings, engine):
    own = doubtful(algorithm=wf.Algorithm("sgd", lr=0.1, batch_size=20), epochs=4, **settings)
    if engine == "native":
        pytest.importorskip("numba")
    trained = fit(own, over=[wf.InitialCondition(2)], engine=engine).mixture[0].trained.last
    smoothing, weight = settings.get("label_smoothing", 0.0), settings.get("class_weights")
    expected = by_hand(own.model, 3, NUMBERS, 20, 4, 0.1, weight, smoothing)
    assert float((trained.double() - expected).abs().max()) < 2e-6


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_label_smoothing_is_drawn_for_every_member(engine):
    if engine == "native":
        pytest.importorskip("numba")
    own = doubtful(algorithm=wf.Algorithm("sgd", lr=0.1, batch_size=20), epochs=4)
    posterior = fit(own, over=[wf.Hyperparameters(3, label_smoothing=Uniform(0.0, 0.3))], engine=engine)
    drawn = [component.run.choices["label_smoothing"] for component in posterior.mixture]
    assert len(set(drawn)) == 3
    assert [row[1] for row in posterior.members().rows] == drawn
    for component, smoothing in zip(posterior.mixture, drawn, strict=True):
        expected = by_hand(own.model, 3, NUMBERS, 20, 4, 0.1, smoothing=smoothing)
        assert float((component.trained.last.double() - expected).abs().max()) < 2e-6
    assert posterior.predict(X).sources().names == ("h",)


def test_label_smoothing_is_no_setting_of_a_regression(problem):
    with pytest.raises(ValueError, match="label_smoothing"):
        wf.marginalise(training(), problem, [wf.Hyperparameters(2, label_smoothing=[0.0, 0.1])], progress=False)


def test_every_variable_goes_with_classes():
    over = [
        wf.Families({"small": mlp(hidden=5, outputs=3), "large": mlp(outputs=3)}),
        wf.Algorithms([wf.Algorithm("sgd", lr=0.1, batch_size=16), wf.Algorithm("adam", lr=0.01, batch_size=16)]),
        wf.Resample(2),
        wf.Iterations(wf.TRADI()),
        wf.Dropout(),
    ]
    posterior = fit(doubtful(epochs=8), over=over)
    sources = posterior.predict(X, 16).sources()
    assert {part for name in sources.names for part in name.split(" x ")} == {"F", "gamma", "D", "t", "M"}
    torch.testing.assert_close(sum(sources.values()), torch.ones(64, dtype=torch.float64))


def test_an_mlp_takes_its_outputs_from_the_classes():
    posterior = fit(doubtful(model=wf.MLP((8,))))
    assert posterior.network.outputs == 3


def test_hopeless_members_are_told_of():
    own = doubtful(algorithm=wf.Algorithm("sgd", lr=30.0, batch_size=20, momentum=0.9), epochs=3)
    with pytest.warns(UserWarning, match="far above that of one answer for all rows"):
        fit(own)


def test_a_softmax_at_the_end_is_told_of():
    own = doubtful(model=lambda: nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)))
    with pytest.warns(UserWarning, match="seems to end in a softmax"):
        fit(own)


class Ends(nn.Module):
    """Ends in a function, in training, in prediction or in both."""

    def __init__(self, function, only_if_training=None):
        super().__init__()
        self.layer, self.function, self.mode = nn.Linear(4, 3), function, only_if_training

    def forward(self, x):
        logits = self.layer(x)
        return logits if self.mode not in (None, self.training) else self.function(logits)


PROBABILITIES = {
    "over the rows": (lambda z: torch.softmax(z, 0), None, "a softmax"),
    "by hand": (lambda z: z.exp() / z.exp().sum(1, keepdim=True), None, "a softmax"),
    "in another shape": (lambda z: z.unsqueeze(1).softmax(-1).squeeze(1), None, "a softmax"),
    "in training": (nn.Softmax(1), True, "a softmax"),
    "in prediction": (nn.Softmax(1), False, "a softmax"),
    "then dropout": (nn.Sequential(nn.Softmax(1), nn.Dropout(0.1)), None, "a softmax"),
    "sigmoid": (torch.sigmoid, None, "a sigmoid"),
    "sigmoid layer": (nn.Sigmoid(), None, "a sigmoid"),
}


@pytest.mark.parametrize(("function", "mode", "what"), PROBABILITIES.values(), ids=PROBABILITIES)
def test_probabilities_at_the_end_are_told_of(function, mode, what):
    with pytest.warns(UserWarning, match=f"seems to end in {what}"):
        fit(doubtful(model=lambda: Ends(function, mode)))


def test_the_logarithm_of_a_softmax_is_as_good_as_logits():
    """Without a warning, which would be an error here."""
    plain, logs = (fit(doubtful(model=lambda f=f: Ends(f))) for f in (nn.Identity(), nn.LogSoftmax(1)))
    x = np.random.default_rng(0).normal(size=(9, 4))
    torch.testing.assert_close(plain.predict(x).mean, logs.predict(x).mean, rtol=0, atol=1e-3)


@pytest.mark.parametrize("weights", [np.array([1.0, 2.0, 1.0]), torch.tensor([1.0, 2.0, 1.0])], ids=["numpy", "torch"])
def test_class_weights_as_arrays(weights):
    assert wf.Classification(class_weights=weights) == wf.Classification(class_weights=(1.0, 2.0, 1.0))
    named = pd.Series({"benign": 1.0, "malignant": 2.0, "unclear": 1.0})
    assert wf.Classification(class_weights=named).class_weights == {"benign": 1.0, "malignant": 2.0, "unclear": 1.0}


def test_folds_know_the_same_classes():
    folds = [np.arange(40), np.arange(20, 64)]
    posteriors = wf.marginalise_folds(doubtful(), (X, WORDS), folds, [wf.InitialCondition(2)], progress=False)
    assert all(posterior.schema.classes == ("benign", "malignant", "unclear") for posterior in posteriors)


# ---------------------------------------------------------------------- files, and members from elsewhere


@pytest.mark.parametrize("y", [WORDS, NUMBERS + 3, NUMBERS == 1], ids=["words", "numbers", "truth"])
def test_a_loaded_posterior_gives_the_same_probabilities(tmp_path, y):
    outputs = len(np.unique(y))
    weights = {label: k + 1.0 for k, label in enumerate(np.unique(y).tolist())}
    own = doubtful(model=mlp(outputs=outputs), label_smoothing=0.1, class_weights=weights)
    posterior = fit(own, y, [wf.InitialCondition(2), wf.Iterations(wf.SWAG(3)), wf.Dropout()])
    posterior.save(tmp_path)
    loaded = wf.load(tmp_path, own.model)
    assert torch.equal(loaded.predict(X).probabilities, posterior.predict(X).probabilities)
    assert loaded.training.likelihood == posterior.training.likelihood
    assert loaded.predict(X).classes == posterior.predict(X).classes
    grown, expected = loaded.extend((X, y), theta0=1, progress=False), posterior.extend(theta0=1, progress=False)
    assert torch.equal(grown.predict(X).probabilities, expected.predict(X).probabilities)


def test_networks_from_elsewhere():
    networks = []
    for seed in range(3):
        torch.manual_seed(seed)
        networks.append(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)))

    def model():
        return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))

    own = wf.Classification(classes=["a", "b", "c"])
    posterior = wf.Posterior.from_members(networks, model=model, x=X.astype(np.float32), likelihood=own)
    x = torch.from_numpy(X).float()
    with torch.no_grad():
        expected = torch.stack([torch.softmax(network(x).double(), -1) for network in networks]).mean(0)
    torch.testing.assert_close(posterior.predict(X).probabilities, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="the classes are not known: name them"):
        wf.Posterior.from_members(networks, model=model, x=X, likelihood=wf.Classification())
    by_data = wf.Posterior.from_members(networks, model=model, data=(X, WORDS), likelihood=wf.Classification())
    assert by_data.predict(X).classes == ("benign", "malignant", "unclear")


def test_calibrated_where_the_model_is_right():
    """Rows from a known logistic model: NLL near that of the truth, ECE near what chance leaves."""
    random = np.random.default_rng(0)
    x = random.normal(size=(3000, 2))
    logits = np.stack([x[:, 0], -x[:, 1], 0.5 * x.sum(1)], 1)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    y = np.array([random.choice(3, p=row) for row in p])
    own = wf.Training(lambda: nn.Linear(2, 3), wf.Algorithm("adam", lr=0.02, batch_size=100), 20, wf.Classification())
    posterior = wf.marginalise(own, (x[:2000], y[:2000]), [wf.InitialCondition(3)], progress=False)
    found = posterior.predict(x[2000:])
    truth = -np.log(p[np.arange(3000), y])[2000:]
    error = truth.std() / math.sqrt(1000)
    assert abs(found.nll(y[2000:]) - truth.mean()) < 3 * error
    assert found.ece(y[2000:]) < 3 * 0.8 * math.sqrt(0.25 * 15 / 1000)
