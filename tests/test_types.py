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
wf.marginalise(plain, None, [], held_out=0.2, groups=[1, 2], compute=wf.Compute(workers=2), device="cpu")
wf.marginalise_folds(plain, None, [[1]], [], on_divergence="keep", workers=2)
"""

WRONG = """
wf.marginalise(plain, None, [], worker=2)
wf.marginalise(plain, None, [], compute={"workers": 2})
wf.marginalise(plain, None, [], folds=[[1]], on_divergence="ignore")
wf.marginalise_folds(plain, None, [[1]], [], heldout=0.2)
"""


def test_predictions_and_options_have_types(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(CODE + WRONG)
    output, errors, _ = api.run(
        [str(path), "--config-file", "", "--ignore-missing-imports", "--follow-imports", "silent"]
    )
    revealed = [line.split('"')[1].rsplit(".", 1)[-1] for line in output.splitlines() if "Revealed type" in line]
    assert revealed == ["ClassPrediction", "ClassPrediction", "CountPrediction"], output + errors
    lines = {int(line.split(":")[1]) for line in output.splitlines() if ": error:" in line}
    first = CODE.count("\n") + 2
    assert lines == set(range(first, first + 4)), output
