"""Whether trajectories had settled: the mean of a law against the last iterate, on rows that were not trained on."""

import json
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

import wherefrom as wf
from conftest import mlp, training
from wherefrom.posterior.settled import compared
from wherefrom.training.data import as_rows

COLUMNS = ("held-out loss, last iterate", "held-out loss, mean")


def rows_of(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, 4))
    return x, 3.0 * x[:, 0] - np.abs(x[:, 1]) + 0.3 * generator.normal(size=count) + 10.0


def swag(start: float, epochs: int, lr: float = 0.005, **changes) -> wf.Posterior:
    over = [wf.InitialCondition(3), wf.Iterations(wf.SWAG(rank=3), start=start)]
    settings = {"epochs": epochs, "algorithm": wf.Algorithm("adam", lr=lr, batch_size=25)} | changes
    return wf.marginalise(training(**settings), rows_of(200, 0), over, seed=1)


def test_losses_are_those_of_the_networks_at_these_weights():
    posterior, (x, y) = swag(0.5, 6), rows_of(50, 1)
    found, network = compared(posterior, as_rows((x, y), posterior.training.likelihood)), mlp()().eval()
    scaled = posterior.scaler.x(torch.tensor(x), torch.float32)
    truth = posterior.scaler.y(torch.tensor(y).unsqueeze(1), torch.float32)
    layout = posterior.network.layout
    for k, component in enumerate(posterior.mixture):
        for theta, loss in ((component.trained.last, found.last[k]), (component.trained.law.mean, found.mean[k])):
            answers = functional_call(network, layout.views(theta), (scaled,))
            assert float(loss) == pytest.approx(float((answers - truth).square().mean()), rel=1e-5)


def test_a_trajectory_that_is_still_improving_is_told():
    with pytest.warns(UserWarning, match=r"mean of the trajectory is worse .* still improving .* Start later"):
        table = swag(0.0, 8).members(rows_of(200, 1))
    last, mean = (np.array(table[name]) for name in COLUMNS)
    assert (mean > last).all()


def test_a_trajectory_that_wanders_is_not():
    posterior = swag(0.5, 120, lr=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = posterior.members(rows_of(200, 1))
    assert set(COLUMNS) <= set(table.columns)


def test_held_out_rows_are_used_where_there_are_any():
    posterior = swag(0.5, 120, lr=0.02, likelihood=wf.Regression(noise="fit"))
    assert set(COLUMNS) <= set(posterior.members().columns)
    assert set(COLUMNS).isdisjoint(posterior.marginalising("theta0").members().columns)  # no law to speak of
    assert set(COLUMNS).isdisjoint(swag(0.5, 6).members().columns)  # no rows


def test_training_rows_are_refused():
    with pytest.raises(ValueError, match="trained on"):
        swag(0.5, 6).members(rows_of(200, 0))


def test_the_mean_of_networks_with_batch_norm_has_statistics_of_its_own():
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))

    posterior, (x, y) = swag(0.25, 8, model=make), rows_of(60, 1)
    found = compared(posterior, as_rows((x, y), posterior.training.likelihood))
    scaled = posterior.scaler.x(torch.tensor(x), torch.float32)
    truth = posterior.scaler.y(torch.tensor(y).unsqueeze(1), torch.float32)
    layout, trained_on = posterior.network.layout, posterior.scaler.x(posterior.rows.x, torch.float32)
    for k, component in enumerate(posterior.mixture):
        rest = component.trained.last[layout.varying_size :]
        network = make()
        network.load_state_dict({**layout.views(torch.cat([component.trained.law.mean, rest]))}, strict=False)
        network[1].momentum = None  # cumulative: one pass over all rows gives their statistics
        network[1].reset_running_stats()
        network(trained_on)
        expected = (network.eval()(scaled) - truth).detach().square().mean()
        assert float(found.mean[k]) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize(("speaks", "cure"), [("python", "start=0.75"), ("command", "--epochs 300")])
def test_the_report_says_so(tmp_path, speaks, cure):
    page = swag(0.0, 8).report(tmp_path / "report.html", rows_of(200, 1), speaks=speaks)
    text = page.read_text()
    caution = text[text.index("The mean of the trajectory is worse") :]
    assert cure in caution[:600]
    assert json.dumps("held-out loss, mean")[1:-1] not in text  # no rows are held out, and the report's are its own
