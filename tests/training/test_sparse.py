"""Sparse linear models: the lasso's solution as the oracle."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.linear_model import Lasso

import wherefrom as wf
from wherefrom.training.sparse import SparseLinear


def test_weight_decay_of_the_factors_is_the_lasso():
    """At a minimum of mean (y - x w)^2 + lambda (|u|^2 + |v|^2) / 2 with w = u v, w is the lasso's with that lambda."""
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 8))
    y = x @ [2, -1, 0, 0, 0, 0, 0, 0.5] + 0.3 * random.normal(size=60)
    penalty = 0.3
    # torch's squared error is the mean of squares, and weight decay adds decay * weight to the gradient
    algorithm = wf.Algorithm("sgd", lr=0.02, momentum=0.9, batch_size=60, weight_decay=penalty)
    training = wf.Training(SparseLinear(), algorithm, epochs=3000)
    posterior = wf.marginalise(training, (x, y), [], engine="torch")
    u, v, _ = posterior.mixture[0].trained.last.split([8, 8, 1])
    standardised, target = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    # scikit-learn's is sum (y - x w)^2 / (2 n) + alpha |w|
    lasso = Lasso(alpha=penalty / 2, fit_intercept=False, tol=1e-10).fit(standardised, target)
    torch.testing.assert_close((u * v).double(), torch.from_numpy(lasso.coef_), atol=1e-3, rtol=0)
    assert (lasso.coef_ == 0).sum() >= 4


def test_it_goes_into_files_and_answers_as_before(tmp_path):
    random = np.random.default_rng(1)
    x = random.normal(size=(40, 5))
    algorithm = wf.Algorithm("adam", lr=0.01, batch_size=20)
    posterior = wf.marginalise(wf.Training(SparseLinear(), algorithm, 5), (x, x[:, 0]), [wf.InitialCondition(2)])
    posterior.save(tmp_path / "run")
    assert torch.equal(wf.load(tmp_path / "run").predict(x).mean, posterior.predict(x).mean)
