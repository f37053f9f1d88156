"""Tables of every task, fitted by default and written as a report: quantities are elsewhere, with their choice."""

import warnings

import numpy as np
import pandas as pd
import pytest

import wherefrom as wf

ROWS = 90
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(ROWS, 2))
LATENT = X[:, 0] + RANDOM.logistic(size=ROWS)
TARGETS = {
    "quantiles": X[:, 1] + RANDOM.normal(size=ROWS),
    "ordinal": np.array(["none", "mild", "severe"])[(LATENT > -0.5).astype(int) + (LATENT > 1)],
    "counts": RANDOM.poisson(np.exp(0.5 * X[:, 0])),
    "positive": np.exp(X[:, 0] + 0.5 * RANDOM.normal(size=ROWS)),
}


@pytest.mark.slow
@pytest.mark.parametrize("task", TARGETS)
def test_a_report_with_the_columns_that_matter(task, tmp_path):
    table = pd.DataFrame(X, columns=["age", "dose"]).assign(y=TARGETS[task])
    more = {"levels": ["none", "mild", "severe"]} if task == "ordinal" else {}
    with warnings.catch_warnings():  # of intervals by few rows, and of neighbours that are better
        warnings.simplefilter("ignore", UserWarning)
        model = wf.fit(table, "y", task=task, workers=1, families="network", **more)
    model.report(tmp_path / "report.html")
    assert "Which columns matter" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert set(model.importance().columns) == {"age", "dose"}
    assert "rises by" in str(model.importance().table())
