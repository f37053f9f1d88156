"""Predictions of classes, against their definitions written out, and on answers whose sources are known."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import made_predictions
import oracle
import wherefrom as wf
from conftest import mlp, training
from wherefrom.likelihoods.classification import ClassPrediction
from wherefrom.predictive import class_scores
from wherefrom.predictive.components import CrossedAxis
from wherefrom.predictive.monte_carlo import Plan
from wherefrom.predictive.one_shot import scalars
from wherefrom.predictive.one_shot.graph import Drop
from wherefrom.predictive.one_shot.heads import softmax
from wherefrom.predictive.one_shot.moments import Moments

CLASSES = ("cat", "dog", "owl")
Y = ["owl", "cat", "cat", "dog", "owl"]
NUMBERS = torch.tensor([2, 0, 0, 1, 2])


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(logits, axes=None, plan=None, classes=CLASSES, **changes) -> ClassPrediction:
    members, samples = logits.shape[:2]
    axes = (CrossedAxis("theta0", members, False),) if axes is None else axes
    plan = Plan.of(samples, vary_theta=samples > 1, vary_mask=False) if plan is None else plan
    return made_predictions.classes(torch.log_softmax(logits, -1), classes, plan, axes, None, **changes)


LOGITS = 2 * normal(4, 6, 5, 3)
P = torch.softmax(LOGITS, -1)
WEIGHTS = torch.tensor([0.5, 0.0, 0.3, 0.2], dtype=torch.float64)


# ---------------------------------------------------------------------- moments and doubt


def missing_entropy(answers, weights=None):
    """Entropy that the mean lacks, to second order: of independent members, or of samples of given members."""
    members, samples = answers.shape[:2]
    if weights is None:
        mean, variance = answers.mean((0, 1)), answers.mean(1).var(0) / members if members > 1 else 0 * answers[0, 0]
    else:
        mean = torch.tensordot(weights, answers.mean(1), 1)
        variance = torch.tensordot(weights.square(), answers.var(1) / samples, 1)
    return (variance / (2 * mean)).sum(-1)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
def test_probabilities_and_doubt_are_those_of_the_mixture(weights):
    prediction = made(LOGITS, weights=weights)
    own = torch.full((4,), 0.25, dtype=torch.float64) if weights is None else weights
    share = own[:, None, None, None] / 6
    p = (share * P).sum((0, 1))
    torch.testing.assert_close(prediction.probabilities, p)
    torch.testing.assert_close(prediction.mean, p)
    torch.testing.assert_close(prediction.variance, (share * (P - p).square()).sum((0, 1)))
    torch.testing.assert_close(prediction.member_probabilities, P.mean(1))
    entropy = -(p * p.log()).sum(1)
    expected = (share.squeeze(-1) * -(P * P.log()).sum(-1)).sum((0, 1))
    torch.testing.assert_close(prediction.entropy, entropy)
    torch.testing.assert_close(prediction.expected_entropy, expected)
    torch.testing.assert_close(prediction.mutual_information, entropy - expected + missing_entropy(P, weights))
    assert prediction.predicted.tolist() == [CLASSES[k] for k in p.argmax(1)]
    torch.testing.assert_close(prediction.confidence, p.amax(1))


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
def test_scores_are_those_of_the_probabilities(weights):
    prediction = made(LOGITS, weights=weights)
    p = prediction.probabilities
    torch.testing.assert_close(prediction.nll(Y, by_row=True), -p[torch.arange(5), NUMBERS].log())
    assert prediction.nll(Y) == pytest.approx(float(-p[torch.arange(5), NUMBERS].log().mean()))
    assert prediction.accuracy(Y) == pytest.approx(float((p.argmax(1) == NUMBERS).double().mean()))
    assert prediction.brier(Y) == pytest.approx(float(class_scores.brier(p, NUMBERS).mean()))
    assert prediction.ece(Y, bins=4) == class_scores.reliability(p, NUMBERS, 4).ece
    assert prediction.ece(Y, bins=2, adaptive=True) == class_scores.reliability(p, NUMBERS, 2, adaptive=True).ece
    own = torch.log(P[:, :, torch.arange(5), NUMBERS].mean(1))
    torch.testing.assert_close(prediction.member_log_densities(Y), own)


def test_certain_answers_have_finite_scores():
    """Logits a thousand apart: a probability of exactly zero in any precision, but not a logarithm."""
    prediction = made(torch.tensor([1000.0, 0.0, 0.0]).expand(1, 1, 5, 3), axes=())
    assert prediction.nll(["dog"] * 5) == pytest.approx(1000, rel=1e-6)
    assert float(prediction.entropy.max()) == float(prediction.mutual_information.max()) == 0.0


def test_to_weigh_nothing_is_to_be_left_out():
    kept = torch.tensor([0, 2, 3])
    part = made(LOGITS[kept], weights=WEIGHTS[kept])
    whole = made(LOGITS, weights=WEIGHTS)
    torch.testing.assert_close(part.probabilities, whole.probabilities)
    torch.testing.assert_close(part.expected_entropy, whole.expected_entropy)
    assert part.nll(Y) == pytest.approx(whole.nll(Y))


def test_doubt_orders_rows_and_finds_strange_ones():
    inside, outside = made(3 * normal(4, 6, 5, 3, seed=1)), made(0.1 * normal(4, 6, 7, 3, seed=2))
    for by in ("entropy", "expected_entropy", "mutual_information", "variance", "confidence"):
        assert inside.auroc(outside, by) == class_scores.auroc(inside.doubt(by), outside.doubt(by))
        assert inside.aupr(outside, by) == class_scores.aupr(inside.doubt(by), outside.doubt(by))
    assert inside.auroc(outside) > 0.8  # nearly even probabilities have more entropy
    errors = inside.probabilities.argmax(1) != NUMBERS
    found = inside.risk_coverage(Y)
    assert found.risk_at(1.0) == pytest.approx(float(errors.double().mean()))
    best = int(inside.confidence.argmax())
    assert found.risk_at(0.2) == float(errors[best])
    with pytest.raises(ValueError, match="by must be one of 'entropy'"):
        inside.doubt("fear")


def test_what_it_says_of_itself():
    assert repr(made(LOGITS)) == "ClassPrediction(5 rows, 3 classes, 4 members x 6 samples)"
    assert repr(made(LOGITS, weights=WEIGHTS)) == "ClassPrediction(5 rows, 3 classes, 4 weighted members x 6 samples)"
    assert len(made(LOGITS)) == 5


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (["owl", "cat"], "y has 2 rows, but the prediction is for 5"),
        (["owl", "cat", "cat", "fox", "owl"], "y is 'fox' in row 3, which is none of the classes 'cat', 'dog', 'owl'"),
        (np.eye(5, 3), "one column of classes.*argmax"),
    ],
    ids=["short", "unknown", "one-hot"],
)
def test_other_truths_are_refused(y, said):
    with pytest.raises(ValueError, match=said):
        made(LOGITS).nll(y)


# ---------------------------------------------------------------------- sources


def components(seed: int, draws: int = 6, samples: int = 40):
    """Probabilities with known components: of theta0, of h, and of t within members.

    p = (1/2 + a u + b v + c w, 1/2 - ...), u, v, w independent in {-1, 1}: variances a^2, b^2 and c^2 of each class.
    """
    generator = torch.Generator().manual_seed(seed)
    u, v = (2.0 * torch.randint(2, (draws,), generator=generator).double() - 1 for _ in range(2))
    w = 2.0 * torch.randint(2, (draws, draws, samples), generator=generator).double() - 1
    a, b, c = 0.1, 0.2, 0.05
    p = 0.5 + a * u[:, None, None] + b * v[None, :, None] + c * w
    both = torch.stack([p, 1 - p], -1).reshape(draws * draws, samples, 1, 2)
    axes = (CrossedAxis("theta0", draws, False), CrossedAxis("h", draws, False))
    plan = Plan.of(samples, vary_theta=True, vary_mask=False)
    return made_predictions.classes(both.log(), (0, 1), plan, axes, None), {"theta0": a**2, "h": b**2, "t": c**2}


@pytest.mark.slow
def test_sources_find_known_components():
    """Over many designs the mean of an unbiased estimate is within three of its standard errors."""
    found = {name: [] for name in ("theta0", "h", "theta0 x h", "t")}
    for seed in range(120):
        prediction, known = components(seed)
        parts = prediction.sources().variance
        for name, values in found.items():
            values.append(float(parts[name][0]))
    for name, values in found.items():
        expected = 2 * known.get(name, 0.0)  # two classes, each with all of it
        error = np.std(values, ddof=1) / math.sqrt(len(values))
        assert abs(np.mean(values) - expected) < 3 * error + 1e-12, name


def test_sources_add_up_over_classes_and_by_class():
    prediction, _ = components(3)
    together, apart = prediction.sources(), prediction.sources(by_class=True)
    for name in together.names:
        torch.testing.assert_close(together.variance[name], apart.variance[name].sum(-1))
        assert together[name].shape == (1,)
        assert apart[name].shape == (1, 2)
    assert sum(float(part) for part in together.values()) == pytest.approx(1)


def test_the_parts_of_mutual_information_add_up_to_it():
    """Where no estimate falls below zero."""
    prediction, known = components(5, draws=40)
    found = prediction.sources("mutual_information")
    total = sum(part.variance for part in found.overall.values())
    assert total == pytest.approx(float(prediction.mutual_information.mean()))
    shares = {name: variance / sum(known.values()) for name, variance in known.items()}
    for name, share in shares.items():
        part = found.overall[name]
        assert abs(part.share - share) < 3 * part.share_error + 0.02, name
    with pytest.raises(ValueError, match="leave by_class out"):
        prediction.sources("mutual_information", by_class=True)
    with pytest.raises(ValueError, match='"variance", of "mutual_information" or of "entropy"'):
        prediction.sources("doubt")


def entropy_of(p):
    return -(p * p.log()).sum(-1)


@pytest.mark.parametrize("reading", [None, "paper"])
@pytest.mark.parametrize("how", ["equal", "weighted", "in blocks", "one-shot", "one network"])
def test_all_doubt_is_overlap_and_disagreement_by_its_sources(how, reading):
    """Against the definitions, from the answers themselves."""
    answers, own, less = P, torch.full((4,), 0.25, dtype=torch.float64), 0.0
    if how == "weighted":
        own = WEIGHTS
        prediction = made(LOGITS, weights=own)
    elif how == "in blocks":
        prediction = made(LOGITS[:, :4], plan=Plan.of(4, vary_theta=True, vary_mask=True))
        answers = P[:, :4]
    elif how == "one-shot":
        answers, spread = P[:, :1], 0.05 * (P * (1 - P))[:, :1]
        less = (spread / (2 * answers)).sum(-1)
        known = {"t": spread.squeeze(1)}
        prediction = made(LOGITS[:, :1], spread=spread, within=lambda: known, covariance="diagonal")
    elif how == "one network":
        answers, own = P[:1, :1], torch.ones(1, dtype=torch.float64)
        prediction = made(LOGITS[:1, :1], axes=())
    else:
        prediction = made(LOGITS)
    share = own[:, None, None] / answers.shape[1]
    whole = entropy_of((share[..., None] * answers).sum((0, 1)))
    if reading is None:
        whole = whole + missing_entropy(answers, own if how == "weighted" else None)
    overlap = (share * (entropy_of(answers) - less)).sum((0, 1))
    found, disagreement = (prediction.sources(of, reading=reading) for of in ("entropy", "mutual_information"))
    if reading is None:
        torch.testing.assert_close(prediction.mutual_information, (whole - overlap).clamp_min(0))
    assert found.names == (*disagreement.names, "overlap")
    torch.testing.assert_close(found["overlap"], overlap / whole)
    torch.testing.assert_close(found.variance["overlap"], overlap)
    apart = float(1 - overlap.mean() / whole.mean())
    assert found.overall["overlap"].share == pytest.approx(1 - apart)
    assert found.overall["overlap"].variance == pytest.approx(float(overlap.mean()))
    for name, part in disagreement.items():
        torch.testing.assert_close(found[name], part * (1 - overlap / whole))
        assert found.overall[name].share == pytest.approx(disagreement.overall[name].share * apart)
    torch.testing.assert_close(sum(found.values()), torch.ones(5, dtype=torch.float64))
    added = sum(max(0.0, part.variance) for part in found.overall.values())
    assert added == pytest.approx(float(whole.mean()))
    assert str(found).split("\n")[0].split()[4:] == ["entropy", "in", "nats", "±", "entropy", "in", "nats"]


def test_rows_without_doubt_are_all_overlap():
    logits = LOGITS.clone()
    logits[:, :, 0] = torch.tensor([0.0, -2000.0, -2000.0])  # everyone is sure of the same
    logits[:, :, 1] = torch.tensor([0.5, 0.0, -0.5])  # everyone is in the same doubt
    logits[:, :, 2] = -2000.0
    logits[[0, 1, 2, 3], :, 2, [0, 1, 2, 0]] = 0.0  # everyone is sure, of different classes
    found = made(logits).sources("entropy")
    assert found["overlap"][:3].tolist() == pytest.approx([1.0, 1.0, 0.0], abs=1e-12)
    assert found["theta0"][2] + found["t"][2] == pytest.approx(1.0)
    assert all(bool(each.isfinite().all()) for part in (found, found.variance) for each in part.values())
    nothing = made(logits[:, :, :1]).sources("entropy").overall
    assert {name: part.share for name, part in nothing.items()} == {"theta0": 0.0, "t": 0.0, "overlap": 1.0}
    assert not any(math.isnan(part.share_error) for part in nothing.values())


def test_two_members_tell_no_error_of_overlap_but_an_interval():
    found = made(LOGITS).sources("entropy").overall["overlap"]
    assert 0 < found.share_error < 1
    two = made(LOGITS[:2]).sources("entropy")
    assert math.isnan(two.overall["overlap"].share_error)
    assert math.isnan(two.overall["t"].share_error)
    for low, high in two.interval().values():
        assert 0 <= low < high <= 1


def test_the_error_of_overlap_is_half_an_interval_of_redrawn_mean_squares():
    """Of one row with two classes, where all degrees of freedom are those of the 4 members, by 400,000 draws.

    Overlap and the variance within members are redrawn by Student's t, the mean square between them by chi-squares.
    """
    members, samples, generator = 4, 10, np.random.default_rng(3)
    logits = 0.7 * generator.normal(size=(members, 1, 1, 2)) + 0.4 * generator.normal(size=(members, samples, 1, 2))
    prediction = made(torch.from_numpy(logits), classes=("cat", "dog"))
    p = torch.softmax(torch.from_numpy(logits), -1).numpy()[:, :, 0]  # (members, samples, classes)
    weights = 0.5 / p.mean((0, 1))
    square = (p.mean(1).var(0, ddof=1) * weights).sum()
    within = (p.var(1, ddof=1) * weights).sum(-1)
    between = square - within.mean() / samples
    overlaps = -(p * np.log(p)).sum(-1).mean(1)
    assert between > 0  # else it is taken as zero
    in_nats = float(prediction.mutual_information) / (between + within.mean())

    def redrawn(values):
        error = values.std(ddof=1) / math.sqrt(members)
        return (values.mean() + error * generator.standard_t(members - 1, size=400_000)).clip(0)

    drawn, varied = redrawn(overlaps), redrawn(within)
    degrees = members - 1
    apart = square * degrees / generator.chisquare(degrees, size=400_000) - varied / samples
    whole = drawn + in_nats * (apart + varied)
    shares = np.sort(drawn / np.maximum(whole, drawn))
    low, high = (shares[int(400_000 * stats.norm.cdf(end))] for end in (-1, 1))
    # A quantile q of 4,000 draws is off by sqrt(q (1 - q) / 4000) in probability, at most: theirs are evenly spaced.
    off = 3 * math.sqrt(stats.norm.cdf(-1) * stats.norm.cdf(1) / 4000)
    nearby = [shares[int(400_000 * (stats.norm.cdf(end) + step))] for end in (-1, 1) for step in (-off, off)]
    tolerance = math.hypot(nearby[1] - nearby[0], nearby[3] - nearby[2]) / 4
    found = prediction.sources("entropy").overall["overlap"].share_error
    assert found == pytest.approx((high - low) / 2, abs=tolerance)


def disagreeing(generator, members, samples, rows=400):
    """Answers with Gaussian logits, of two rows in turn; a design by itself at every row."""
    logits = 1.5 * generator.normal(size=(members, 1, rows, 3)) + 1.0 * generator.normal(
        size=(members, samples, rows, 3)
    )
    return torch.from_numpy(logits)


@pytest.mark.parametrize(("members", "samples", "most"), [(2, 4, 0.08), (3, 1, 0.05), (5, 4, 0.03), (10, 4, 0.02)])
def test_mutual_information_is_that_of_many_members(members, samples, most):
    """Its mean over 4,000 designs is within so much of that of a million draws; the paper's is much lower."""
    generator = np.random.default_rng(8)
    p = torch.softmax(disagreeing(generator, 1, 1, 1_000_000), -1)[0, 0]
    truth = float(entropy_of(p.mean(0)) - entropy_of(p).mean())
    plan = Plan.of(samples, vary_theta=True, vary_mask=False)
    prediction = made(disagreeing(generator, members, samples, 4000), plan=plan)
    found = prediction.mutual_information
    error = float(found.std()) / math.sqrt(len(found))
    assert abs(float(found.mean()) / truth - 1) < most + 3 * error / truth
    shown = float((prediction.entropy - prediction.expected_entropy).mean())
    assert shown < (1 - 0.5 / members) * truth
    if samples > 1:
        total = sum(part.clamp_min(0) for part in prediction.sources("mutual_information").variance.values())
        torch.testing.assert_close(total, found)


@pytest.mark.slow
@pytest.mark.parametrize("members", [8, 40])
def test_the_error_of_overlap_is_about_what_it_varies_by(members):
    """Over 300 posteriors each, whose answers differ by initial condition and by sample.

    It is half the width of a 68% interval, by Student's t with a degree of freedom less than there are members.
    """
    shares, errors = [], []
    for seed in range(300):
        logits = normal(members, 1, 20, 3, seed=seed) + 0.5 * normal(members, 10, 20, 3, seed=1000 + seed)
        part = made(logits).sources("entropy").overall["overlap"]
        shares.append(part.share)
        errors.append(part.share_error)
    spread, said = float(np.std(shares, ddof=1)), math.sqrt(np.mean(np.square(errors)))
    # The spread of 300 is known to 1 / sqrt(600) of itself; what is said varies too.
    error = math.hypot(spread / math.sqrt(2 * 300), float(np.std(errors)) / math.sqrt(300))
    assert abs(said - stats.t.ppf(stats.norm.cdf(1), members - 1) * spread) < 3 * error


# ---------------------------------------------------------------------- one-shot


@pytest.fixture(scope="module")
def posterior():
    return doubtful()


def doubtful():
    random = np.random.default_rng(3)
    x = random.normal(size=(150, 4))
    y = np.array(CLASSES)[np.digitize(x[:, 0] + 0.5 * random.normal(size=150), [-0.5, 0.7])]
    over = [wf.InitialCondition(3), wf.Iterations(wf.SWAG(4)), wf.Dropout()]
    short = training(mlp(outputs=3), epochs=15, likelihood=wf.Classification())
    return wf.marginalise(short, (x, y), over, seed=1, progress=False), x, y


def test_one_shot_is_near_many_samples(posterior):
    fitted, x, y = posterior
    sampled, pushed = fitted.predict(x, 2000), fitted.one_shot(x)
    assert pushed.method == "one_shot"
    assert repr(pushed) == "ClassPrediction(150 rows, 3 classes, 3 members, one-shot with low_rank covariance)"
    torch.testing.assert_close(pushed.probabilities.sum(1), torch.ones(150, dtype=torch.float64))
    assert float((pushed.probabilities - sampled.probabilities).abs().max()) < 0.02
    assert pushed.nll(y) == pytest.approx(sampled.nll(y), abs=0.01)
    ratio = pushed.std / sampled.std
    assert 0.75 < float(ratio.median()) < 1.1
    assert float((pushed.expected_entropy - sampled.expected_entropy).abs().max()) < 0.05
    check = fitted.check_one_shot(x, samples=1000)
    assert check.mean_error < 0.1
    assert check.std_error < 0.3
    shares, expected = pushed.sources(), sampled.sources()
    assert set(shares.names) == set(expected.names)
    for name in ("theta0", "t", "F"):
        assert abs(shares.overall[name].share - expected.overall[name].share) < 0.1, name


def test_logits_share_what_varies_before_them():
    """Dropout before a linear layer: the exact covariance of its outputs, by going through all masks."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Dropout(0.3), nn.Linear(4, 3)).double()
    x = normal(2, 4)
    tensors = {f"1.{name}": Moments(tensor.detach()) for name, tensor in layers[1].named_parameters()}
    out = oracle.pushed(layers.eval(), Moments(x), tensors, [Drop(0.3)], jointly=True)
    masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=4)), dtype=torch.float64)
    weights = (0.7**masks * 0.3 ** (1 - masks)).prod(1)
    logits = layers(x * masks[:, None] / 0.7).detach()
    mean = torch.einsum("m,mrk->rk", weights, logits)
    covariance = torch.einsum("m,mrk,mrl->rkl", weights, logits - mean, logits - mean)
    torch.testing.assert_close(out.mean, mean)
    torch.testing.assert_close(out.covariance, covariance)
    # What softmax makes of it is nearer to the truth than what it makes of the variances alone.
    p = torch.softmax(logits, -1)
    std = (torch.einsum("m,mrk->rk", weights, p.square()) - torch.einsum("m,mrk->rk", weights, p).square()).sqrt()
    far = [
        float((softmax(known).total_variance.sqrt() / std - 1).abs().mean())
        for known in (out, Moments(out.mean, out.variance))
    ]
    assert far[0] < 0.5 * far[1]


def test_auto_chooses_by_the_check(posterior):
    fitted, x, _ = posterior
    assert fitted.predict(x, method="auto", tolerance=1.0).method == "one_shot"
    assert fitted.predict(x, 8, method="auto", tolerance=1e-6).method == "monte_carlo"


def test_members_can_be_weighted_by_held_out_rows(posterior):
    fitted, x, y = posterior
    weighted = fitted.weighted("stacking", (x[::2] + 0.01, y[::2]))
    densities = fitted.predict(x[::2] + 0.01).member_log_densities(y[::2])
    best = max(
        float(torch.logsumexp(densities + torch.tensor(w, dtype=torch.float64).log()[:, None], 0).mean())
        for w in itertools.product(*[np.linspace(0.001, 1, 12)] * 3)
        if abs(sum(w) - 1) < 0.05
    )
    assert -weighted.predict(x[::2] + 0.01).nll(y[::2]) >= best - 0.01
    assert sum(weighted.weights) == pytest.approx(1)


@pytest.mark.slow
def test_onnx_gives_the_probabilities(tmp_path, monkeypatch):
    """With fewer points of quadrature, here and there alike: each is some nodes to export."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs wherefrom[onnx]")
    monkeypatch.setattr(scalars, "_POINTS", 3)
    fitted, x, _ = doubtful()
    fitted.export_onnx(tmp_path / "classes.onnx", covariance="diagonal")
    session = onnxruntime.InferenceSession(str(tmp_path / "classes.onnx"), providers=["CPUExecutionProvider"])
    mean, variance = session.run(None, {"x": x.astype(np.float32)})
    expected = fitted.one_shot(x, covariance="diagonal")
    np.testing.assert_allclose(mean, expected.probabilities, atol=1e-5)
    np.testing.assert_allclose(variance, expected.variance, atol=1e-5)
    assert session.get_modelmeta().custom_metadata_map["classes"] == '["cat", "dog", "owl"]'
