"""Objects in a notebook: their HTML, their frames, and what their pictures draw."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import wherefrom as wf
from wherefrom.likelihoods.quantiles import QuantilePrediction
from wherefrom.plots import NOISE_COLOUR, bars, coverage, intervals, new_figure, stacked
from wherefrom.showing import card, frame_of, html_table
from wherefrom.table import Table

pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'wherefrom[plot]'")
LIKELIHOODS = {
    "regression": wf.Regression(noise="fit"),
    "positive": wf.Positive(),
    "counts": wf.Counts(),
    "classes": wf.Classification(),
    "ordinal": wf.Ordinal(levels=(0, 1, 2)),
    "quantiles": wf.Quantiles([0.1, 0.5, 0.9]),
    "survival": wf.Survival(),
}


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    x = random.normal(size=(80, 2))
    quantity = x[:, 0] + 0.3 * random.normal(size=80)
    return x, {
        "regression": quantity,
        "positive": np.exp(quantity),
        "counts": random.poisson(np.exp(quantity)).astype(float),
        "classes": (quantity > 0).astype(int),
        "ordinal": np.digitize(quantity, [-0.5, 0.5]),
        "quantiles": quantity,
        "survival": (np.exp(quantity), random.random(80) < 0.7),
    }


@pytest.fixture(scope="module", params=LIKELIHOODS)
def shown(request, rows):
    """A posterior, its prediction, and the truth."""
    x, truths = rows
    training = wf.Training(
        wf.MLP([8]), wf.Algorithm("adam", lr=0.03, batch_size=40), epochs=5, likelihood=LIKELIHOODS[request.param]
    )
    posterior = wf.marginalise(training, (x, truths[request.param]), over=[wf.InitialCondition(2)], seed=0)
    return posterior, posterior.predict(x), truths[request.param]


def axes():
    return new_figure(4, 4).subplots()


def test_every_prediction_shows_itself(shown):
    posterior, prediction, _ = shown
    for each in (posterior, posterior.members(), prediction, prediction.all_sources()):
        html = each._repr_html_()
        assert html.count("<table") == html.count("</table>") >= 1
    assert "75 more rows" in prediction._repr_html_()


def test_every_prediction_has_a_frame_with_what_is_predicted_and_its_sources(shown):
    _, prediction, _ = shown
    frame = prediction.to_frame()
    assert len(frame) == 80
    columns, _ = prediction.columns(0.95)
    for name, values in columns.items():
        assert list(frame[name]) == list(values)
    shares = prediction.all_sources()
    np.testing.assert_array_equal(frame["share theta0"], shares["theta0"])
    np.testing.assert_array_equal(prediction.to_frame(library="polars")["share theta0"], shares["theta0"])


def test_every_kind_of_picture_is_drawn_on_the_axes_that_are_given(shown):
    _, prediction, truth = shown
    for kind in prediction.picture_kinds:
        given = axes()
        assert prediction.plot(kind, truth, ax=given) is given
        assert given.get_xlabel()
        assert given.has_data()
    with pytest.raises(ValueError, match="kind must be"):
        prediction.plot("nothing")


def test_pictures_that_need_the_truth_say_so(shown):
    _, prediction, _ = shown
    for kind in {"calibration", "reliability", "risk_coverage"} & set(prediction.picture_kinds):
        with pytest.raises(ValueError, match="needs the truth"):
            prediction.plot(kind, ax=axes())


def test_losses_are_drawn_for_each_member(shown):
    posterior, _, _ = shown
    lines = posterior.plot(ax=axes()).get_lines()
    assert [line.get_label() for line in lines] == ["theta0 0", "theta0 1"]
    for line, member in zip(lines, posterior.mixture, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), member.trained.losses)


def test_lines_between_members_begin_and_end_at_their_losses(rows):
    x, truths = rows
    training = wf.Training(wf.MLP([8]), wf.Algorithm("adam", lr=0.03, batch_size=40), epochs=8)
    over = [wf.InitialCondition(2), wf.Iterations(wf.Snapshots())]
    posterior = wf.marginalise(training, (x, truths["regression"]), over=over, seed=0)
    drawn = {line.get_label(): line for line in posterior.plot("lines", ax=axes()).get_lines()}
    assert set(drawn) == {"theta0", "t"}
    scale = truths["regression"].std() ** 2  # losses are of the standardised target
    predicted = posterior.predict(x, samples=1).samples[:, 0]
    errors = [float(((each.numpy() - truths["regression"]) ** 2).mean()) / scale for each in predicted]
    ends = [float(np.interp(end, *drawn["theta0"].get_data())) for end in (0, 1)]
    assert ends == pytest.approx(errors, rel=0.05)  # between two of the points that are drawn
    with pytest.raises(ValueError, match="there is no line"):
        posterior.marginalising().plot("lines")


def test_a_display_for_scikit_learn(rows):
    x, truths = rows
    fitted = wf.WherefromRegressor(epochs=5, draws=2, random_state=0, families="network").fit(x, truths["regression"])
    display = wf.DoubtDisplay.from_estimator(make_pipeline(FunctionTransformer(), fitted), x, truths["regression"])
    assert display.figure_ is display.ax_.figure
    assert display.ax_.get_xlabel() == "truth"
    first = display.ax_
    assert display.plot(ax=axes()).ax_ is not first
    with pytest.raises(TypeError, match="no predict_dist"):
        wf.DoubtDisplay.from_estimator(FunctionTransformer(), x)


def test_intervals_stand_in_the_order_of_predictions():
    drawn = intervals([3.0, 1.0, 2.0], [2.0, 0.0, 1.0], [4.0, 2.0, 3.0], ax=axes())
    assert drawn.get_lines()[0].get_ydata().tolist() == [1.0, 2.0, 3.0]
    ends = [segment[:, 1].tolist() for segment in drawn.collections[0].get_segments()]
    assert ends == [[0.0, 2.0], [1.0, 3.0], [2.0, 4.0]]


def test_coverage_has_a_band_of_chance():
    drawn = coverage([0.5, 0.9], [0.6, 0.8], 100, ax=axes())
    assert drawn.get_lines()[1].get_ydata().tolist() == [0.6, 0.8]
    band = drawn.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(0.9 + 1.96 * 0.03)
    assert band[:, 1].min() == pytest.approx(0.5 - 1.96 * 0.05)


def test_rows_are_stacked_in_the_order_of_their_doubt():
    drawn = stacked({"theta0": [1.0, 5.0], "noise": [1.0, 2.0]}, "variance", ax=axes())
    heights = [collection.get_paths()[0].vertices[:, 1].max() for collection in drawn.collections]
    assert heights == [2.0, 7.0]  # noise lowest, of the row with most doubt
    assert [text.get_text() for text in drawn.get_legend().get_texts()] == ["theta0", "noise"]


def test_bars_have_the_lengths_of_shares_and_no_error_where_none_is_known():
    drawn = bars({"t": 0.25, "noise": 0.75}, {"t": 0.1, "noise": float("nan")}, "share", ax=axes())
    assert [bar.get_width() for bar in drawn.patches] == [0.25, 0.75]
    (errors,) = next(each for each in drawn.containers if hasattr(each, "has_xerr")).lines[2]
    assert [np.ptp(segment[:, 0]) for segment in errors.get_segments()] == pytest.approx([0.2, 0.0])


def test_a_new_figure_is_one_that_notebooks_show():
    from matplotlib import pyplot

    drawn = intervals([1.0], [0.0], [2.0])
    assert pyplot.fignum_exists(drawn.figure.number)
    pyplot.close(drawn.figure)


def test_cells_and_titles_are_text():
    assert "<script>" not in html_table(["<script>"], [["<script>"]], [False])
    assert "<script>" not in card("<script>", facts={"<script>": "<script>"})


def test_a_table_becomes_a_frame_of_either_library():
    table = Table(("name", "±", "±"), [("a", 1.0, 2.0), ("b", 3.0, 4.0)])
    pd.testing.assert_frame_equal(
        table.to_frame(), pd.DataFrame({"name": ["a", "b"], "±": [1.0, 3.0], "±_": [2.0, 4.0]})
    )
    assert table.to_frame("polars").rows() == [("a", 1.0, 2.0), ("b", 3.0, 4.0)]
    assert list(Table(("a",), []).to_frame().columns) == ["a"]
    with pytest.raises(ValueError, match='"pandas" or "polars"'):
        frame_of({}, "excel")


def test_a_model_of_a_table_shows_itself(rows):
    x, truths = rows
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(y=truths["regression"])
    with pytest.warns(UserWarning, match="would be better"):  # after five epochs
        model = wf.fit(frame, "y", epochs=5, draws=2, samples=4)
    sources = model.sources(frame)
    importance, unexplained, advice = model.importance(), model.unexplained(), model.advice()
    scores = len(model.scores.values)
    lengths = (model, scores), (sources, 80), (importance, 2), (unexplained, len(unexplained)), (advice, len(advice))
    for each, length in lengths:
        assert each._repr_html_().startswith("<div")
        assert len(each.to_frame()) == length
    assert len(model.plot(ax=axes()).containers) == 2  # rows whose interval holds the truth, and others
    drawn = sources.plot(ax=axes())
    bars_by_words = dict(zip([each.get_text() for each in drawn.get_yticklabels()], drawn.patches, strict=True))
    assert sorted(bar.get_width() for bar in drawn.patches) == sorted(part.share for part in sources.overall.values())
    assert list(bars_by_words)[-1] == "not explained by your columns"
    grey = (*(int(NOISE_COLOUR[start : start + 2], 16) / 255 for start in (1, 3, 5)), 1.0)
    greys = [words for words, bar in bars_by_words.items() if bar.get_facecolor() == pytest.approx(grey)]
    assert greys == ["not explained by your columns"]
    assert len(importance.plot(ax=axes()).patches) == 2
    assert unexplained.plot(ax=axes()).get_xlabel() == "errors are larger, times"


# ---------------------------------------------------------------------- ArviZ


def test_samples_become_inference_data(shown):
    pytest.importorskip("arviz", reason="InferenceData needs ArviZ: pip install 'wherefrom[arviz]'")
    _, prediction, truth = shown
    if isinstance(prediction, QuantilePrediction):
        with pytest.raises(ValueError, match="there is nothing to draw from"):
            prediction.to_inference_data()
        return
    data = prediction.to_inference_data(samples=20, seed=3)
    drawn = data.posterior_predictive["y"]
    assert drawn.dims == ("chain", "draw", "row")
    np.testing.assert_array_equal(drawn.values[0], np.asarray(prediction.sample(20, 3)))
    assert "observed_data" not in data.groups()
    if not isinstance(truth, tuple):
        again = prediction.to_inference_data(truth, samples=20)
        np.testing.assert_array_equal(again.observed_data["y"].values, truth)
    with pytest.raises(ValueError, match="y has the shape"):
        prediction.to_inference_data(np.zeros((3, 2)), samples=5)


def test_inference_data_without_arviz_names_the_extra(rows, monkeypatch):
    x, truths = rows
    training = wf.Training(wf.MLP([4]), wf.Algorithm("adam", lr=0.03, batch_size=40), epochs=1)
    prediction = wf.marginalise(training, (x, truths["regression"]), over=[wf.InitialCondition(2)]).predict(x)
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"pip install 'wherefrom\[arviz\]'"):
        prediction.to_inference_data()
