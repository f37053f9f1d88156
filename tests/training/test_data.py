"""Data in the forms that users have it, and the errors that name what is wrong."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch.utils.data import TensorDataset

import wherefrom as wf
from conftest import mlp, training
from wherefrom.training import data as forms
from wherefrom.training.data import Scaler

X = np.arange(12.0).reshape(6, 2) ** 2
Y = np.arange(6.0)
FORMS = {
    "numpy": (X, Y),
    "lists": (X.tolist(), Y.tolist()),
    "torch": (torch.from_numpy(X), torch.from_numpy(Y)),
    "pandas": (pd.DataFrame(X, columns=["age", "dose"]), pd.Series(Y)),
    "polars": (pl.DataFrame(X, schema=["age", "dose"]), pl.Series(Y)),
    "dataset": TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
}


def as_rows(data):
    return forms.as_rows(data, wf.Regression())


@pytest.mark.parametrize("data", FORMS.values(), ids=FORMS)
def test_every_form_gives_the_same_rows(data):
    rows = as_rows(data)
    assert torch.equal(rows.x, torch.from_numpy(X))
    assert torch.equal(rows.y, torch.from_numpy(Y)[:, None])
    assert rows.y_is_flat


def test_frames_keep_their_column_names():
    assert as_rows(FORMS["pandas"]).x_names == ("age", "dose")
    assert as_rows(FORMS["polars"]).x_names == ("age", "dose")


def test_integer_frames_are_numbers_and_integer_arrays_are_indices():
    assert as_rows((pd.DataFrame({"a": [1, 2]}), [0.0, 1.0])).x.is_floating_point()
    assert not as_rows((np.array([[1], [2]]), [0.0, 1.0])).x.is_floating_point()


def hole(array, row, column, value=np.nan):
    array = array.copy()
    array[row, column] = value
    return array


BAD = [
    ((hole(X, 3, 1), Y), "x has 1 missing or infinite value, the first in column 1, row 3"),
    ((X, Y > 2), "true or false"),
    ((pd.DataFrame(X), pd.Series(Y, index=range(1, 7))), "different row labels"),
    ((pd.DataFrame(hole(X, 2, 0, np.inf), columns=["age", "dose"]), Y), "column 'age', row 2"),
    ((X, np.r_[Y[:-1], np.nan]), "y has 1 missing or infinite value, the first in row 5"),
    ((X, Y[:-1]), "x has 6 rows but y has 5"),
    ((X[:0], Y[:0]), "no rows"),
    ((Y, Y), r"reshape\(-1, 1\)"),
    ((X, X[:, :, None]), "y must have shape"),
    ((pd.DataFrame({"a": ["x", "y"]}), [1, 2]), "column 'a'"),
    ((np.array([["x"], ["y"]]), [1, 2]), "not numbers"),
]


@pytest.mark.parametrize(("data", "message"), BAD, ids=[m for _, m in BAD])
def test_bad_data_is_named(data, message):
    with pytest.raises(ValueError, match=message):
        as_rows(data)


@pytest.mark.parametrize("data", [3, pd.DataFrame(X), {"x": X, "y": Y}])
def test_something_else_is_refused(data):
    with pytest.raises(TypeError, match=r"marginalise\(training, \(x, y\), over="):
        as_rows(data)


def test_whole_numbers_at_prediction_are_measurements_if_they_were_in_training(problem):
    posterior = wf.marginalise(training(), problem, [])
    whole = problem[0].round().astype(int)
    assert torch.equal(posterior.predict(whole).mean, posterior.predict(whole.astype(float)).mean)
    with pytest.raises(ValueError, match="x has no rows"):
        posterior.predict(problem[0][:0])


def test_columns_of_y_are_known_by_name(problem):
    x, y = problem
    both = pd.DataFrame({"y": y, "z": -y})
    prediction = wf.marginalise(training(mlp(outputs=2)), (x, both), []).predict(x)
    with pytest.raises(ValueError, match=r"y has the columns \['z', 'y'\]"):
        prediction.rmse(both[["z", "y"]])


def test_constant_columns_are_safe():
    x = np.c_[np.full(6, 0.1), np.arange(6.0)]
    scaler = Scaler.of(as_rows((x, np.full(6, 7.0))), True, wf.Regression())
    assert scaler.x(torch.from_numpy(x), torch.float32)[:, 0].abs().max() < 1e-15
    assert float(scaler.y_std) == 1.0


def test_large_offsets_lose_nothing():
    """A column of times in seconds since 1970: single precision alone would round it to two minutes."""
    x = 1.7e9 + np.arange(6.0)[:, None]
    scaled = Scaler.of(as_rows((x, Y)), True, wf.Regression()).x(torch.from_numpy(x), torch.float32)
    torch.testing.assert_close(scaled[:, 0], torch.linspace(-2.5, 2.5, 6) / 35**0.5 * 12**0.5)


def test_predictions_come_back_in_the_users_units(problem):
    """Scaling y scales the prediction, and shifting it shifts the mean alone."""
    x, y = problem
    plain = wf.marginalise(training(), (x, y), wf.recipes.deep_ensemble(3)).predict(x)
    moved = wf.marginalise(training(), (x, 1e6 + 1000 * y), wf.recipes.deep_ensemble(3)).predict(x)
    torch.testing.assert_close(moved.mean, 1e6 + 1000 * plain.mean, rtol=0, atol=0.1)
    torch.testing.assert_close(moved.std, 1000 * plain.std, rtol=1e-3, atol=0.1)


def test_images_and_indices_are_not_standardised():
    images = as_rows((torch.full((5, 1, 2, 2), 7.0), torch.arange(5.0)))
    assert torch.equal(Scaler.of(images, True, wf.Regression()).x(images.x, torch.float32), images.x)


def test_embeddings_take_integers():
    from torch import nn

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(5, 3), nn.Linear(6, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.table(x).flatten(1))

    x = np.random.default_rng(0).integers(5, size=(40, 2))
    posterior = wf.marginalise(training(Words), (x, x.sum(1)), wf.recipes.deep_ensemble(2))
    assert posterior.predict(x).rmse(x.sum(1)) < 2.0


def test_other_columns_than_in_training_are_refused(problem):
    posterior = wf.marginalise(training(), problem, [])
    with pytest.raises(ValueError, match=r"shape \(3,\), but the model was trained on rows of \(4,\)"):
        posterior.predict(problem[0][:, :3])


def test_a_frames_columns_must_be_those_of_training(problem):
    frame = pd.DataFrame(problem[0], columns=["age", "dose", "weight", "height"])
    posterior = wf.marginalise(training(), (frame, problem[1]), [])
    with pytest.raises(ValueError, match=r"another order than in training: use x\[\['age', 'dose'"):
        posterior.predict(frame[["dose", "age", "weight", "height"]])
    with pytest.raises(ValueError, match=r"missing \['age'\], not known \['years'\]"):
        posterior.predict(frame.rename(columns={"age": "years"}))
    assert torch.equal(posterior.predict(frame).mean, posterior.predict(problem[0]).mean)


def test_multi_output(problem):
    x, y = problem
    both = np.c_[y, -5 * y]
    posterior = wf.marginalise(training(mlp(outputs=2)), (x, both), wf.recipes.deep_ensemble(3))
    prediction = posterior.predict(x)
    assert prediction.mean.shape == prediction.std.shape == (90, 2)
    assert prediction.sources()["theta0+order"].shape == (90, 2)
    assert prediction.nll(both, by_row=True).shape == (90,)


@pytest.mark.parametrize("y", [np.array([1e200, -1e200, 0.0]), np.array([[1.0, 1e150], [2.0, 0.0], [0.0, 0.0]])])
def test_a_y_whose_square_is_no_number_is_refused(y):
    with pytest.raises(ValueError, match=r"y is as large as 1e\+\d+, too large to be squared"):
        as_rows((np.eye(3), y))
