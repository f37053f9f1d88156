"""A user's type checker knows what a posterior predicts, by the likelihood of its training."""

import pytest

api = pytest.importorskip("mypy.api")
pytestmark = pytest.mark.slow

CODE = """
import wherefrom as wf

how = wf.Algorithm("adam", lr=0.01, batch_size=10)
classes = wf.marginalise(wf.Training(wf.MLP([3]), how, 5, wf.Classification()), None, [])
reveal_type(classes.predict(None))
reveal_type(classes.select(theta0=1).calibrated("temperature").one_shot(None))
folds = wf.marginalise(wf.Training(wf.MLP([3]), how, 5, wf.Counts()), None, [], folds=[[1]])
reveal_type(folds[0].predict(None))

plain = wf.Training(wf.MLP([3]), how, 5)  # which needs no annotation

def any_kind(posterior: wf.Posterior) -> None:
    posterior.predict(None).interval(0.9)

any_kind(classes)
"""


def test_predictions_have_types(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    said, errors, _ = api.run(
        [str(path), "--config-file", "", "--ignore-missing-imports", "--follow-imports", "silent"]
    )
    revealed = [line.split('"')[1].rsplit(".", 1)[-1] for line in said.splitlines() if "Revealed type" in line]
    assert revealed == ["ClassPrediction", "ClassPrediction", "CountPrediction"], said + errors
    assert "error:" not in said
