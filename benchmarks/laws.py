"""NLL on the UCI sets of laws over the weights, alone and with initial conditions, and what they cost.

    python benchmarks/laws.py --data ../data                          all sets that take minutes, 20 folds
    python benchmarks/laws.py --data ../data --sets yacht --folds 5 --out laws.md

Every method trains the same network, of 50 units, for the same number of epochs, on the published splits. The noise is
fitted on rows that are held out of training, in the same way for all. What samples or learns a variance has to know how
noisy y is: its temperature is twice the mean training loss of the plain networks, in y's standard units, and its weight
decay makes a prior of precision 1. "alone" is the
first member, "with theta0" is all of them. Processor time is that of training a member, relative to the plain one's.
Where laplace-torch is installed, its Kronecker-factored and diagonal approximations are made of the same networks.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import wherefrom as wf
from setting import setting
from wherefrom.reproduce import datasets

SETS = ("boston", "concrete", "energy", "wine", "yacht")
MEMBERS, UNITS, SAMPLES, CYCLES = 5, 50, 100, 4


class Way(NamedTuple):
    """A method: its variables beside theta0, and what of the training is its own."""

    over: list[Any]
    method: str = "monte_carlo"
    algorithm: Callable[[float, int], wf.Algorithm] = lambda temperature, rows: wf.Algorithm(
        "adam", lr=0.01, batch_size=100
    )
    model: Any = wf.MLP([UNITS])


def sampling(temperature: float, rows: int) -> wf.Algorithm:
    """Sample by SGHMC, preconditioned, in cycles."""
    return wf.Algorithm(
        "sghmc",
        lr=0.002,
        batch_size=100,
        temperature=temperature,
        weight_decay=temperature / rows,
        preconditioned=True,
        schedule=wf.schedules.Cyclical(cycles=CYCLES),
        noise_below=0.2,
    )


def learning(temperature: float, rows: int) -> wf.Algorithm:
    """Learn a Gaussian by IVON."""
    return wf.Algorithm(
        "ivon",
        lr=0.1,
        batch_size=100,
        temperature=temperature,
        weight_decay=temperature / rows,
        hess_init=0.5,
        beta2=0.999,
    )


PLAIN = "one network, or a deep ensemble"
WAYS = {
    PLAIN: Way([]),
    "SWAG": Way(wf.recipes.swag()),
    "Laplace, diagonal": Way(wf.recipes.laplace("diagonal"), "linearised"),
    "Laplace, kron": Way(wf.recipes.laplace("kron"), "linearised"),
    "Laplace, kron, by cross-validation": Way(wf.recipes.laplace("kron", "cv"), "linearised"),
    "Laplace, kron, sampled": Way(wf.recipes.laplace("kron")),
    "Laplace, last layer": Way(wf.recipes.laplace("last_layer"), "linearised"),
    "Laplace, full": Way(wf.recipes.laplace("full"), "linearised"),
    "cyclical SGHMC": Way(wf.recipes.cyclical_sg_mcmc(CYCLES), algorithm=sampling),
    "IVON": Way(wf.recipes.variational(), algorithm=learning),
    "BatchEnsemble": Way(wf.recipes.batch_ensemble(), model=wf.rank_one(wf.MLP([UNITS]), networks=4)),
}


class Score(NamedTuple):
    alone: float
    together: float
    seconds: float  # of a member


def trained(way: Way, data: tuple[Any, Any], folds: list[Any], epochs: int, temperature: float) -> list[wf.Posterior]:
    algorithm = way.algorithm(temperature, len(folds[0][0]))
    training = wf.Training(way.model, algorithm, epochs, wf.Regression(noise="fit"))
    over = [wf.Jointly(wf.InitialCondition(), wf.BatchOrder(), draws=MEMBERS), *way.over]
    compute = wf.Compute(progress=False)
    return wf.marginalise_folds(training, data, [train for train, _ in folds], over, compute=compute)


def scored(way: Way, posteriors: list[wf.Posterior], data: tuple[Any, Any], folds: list[Any]) -> Iterator[Score]:
    x, y = data
    for posterior, (_, test) in zip(posteriors, folds, strict=True):
        first = posterior.design.axes[0].name
        parts = posterior.select(**{first: [posterior.draws(first)[0]]}), posterior
        nll = [float(part.predict(x[test], SAMPLES, method=way.method).nll(y[test])) for part in parts]
        yield Score(*nll, sum(member.trained.seconds for member in posterior.mixture) / len(posterior))


def by_laplace_torch(structure: str, posterior: wf.Posterior, data: tuple[Any, Any], fold: Any) -> float:
    """NLL of laplace-torch on the first network of a fold, with its own choice of the prior.

    As for ours, the predictive noise is the one that makes the rows most likely that were held out of training.
    """
    from laplace import Laplace
    from laplace.curvature import CurvlinopsGGN

    (rows, test), (x, y), scaler, held_out = fold, data, posterior.scaler, posterior.held_out
    train = [row for row in rows if not (held_out.x.numpy() == x[row]).all(1).any()]
    member, layout = posterior.mixture[0], posterior.networks[""].layout
    network = nn.Sequential(nn.Linear(x.shape[1], UNITS), nn.ReLU(), nn.Linear(UNITS, 1))
    network.load_state_dict(layout.views(member.trained.last))
    x_train = scaler.x(torch.as_tensor(x[train]), torch.float32)
    y_train = scaler.y(torch.as_tensor(y[train])[:, None], torch.float32)
    with torch.no_grad():
        noise = float((network(x_train) - y_train).square().mean().sqrt())  # of the residuals, as ours is
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x_train, y_train), batch_size=256)
    theirs = Laplace(network, "regression", "all", structure, sigma_noise=noise, backend=CurvlinopsGGN)
    theirs.fit(loader)
    theirs.optimize_prior_precision()

    def log_likelihood(x: Any, y: Any, noise: float) -> float:
        mean, variance = theirs(scaler.x(torch.as_tensor(x), torch.float32))
        spread = (variance.flatten().double() + noise).sqrt() * float(scaler.y_std)
        centre = mean.flatten().double() * float(scaler.y_std) + float(scaler.y_mean)
        return float(torch.distributions.Normal(centre, spread).log_prob(torch.as_tensor(y).flatten()).mean())

    best = max(np.logspace(-6, 1, 200), key=lambda noise: log_likelihood(held_out.x, held_out.y, noise))
    return -log_likelihood(x[test], y[test], best)


def with_error(values: list[float]) -> str:
    error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{np.mean(values):.3f} ± {error:.3f}"


def page(name: str, data: tuple[Any, Any], folds: list[Any], epochs: int, ways: list[str]) -> list[str]:
    """Train the plain networks and other methods on a set; return their rows of the table."""
    plain = trained(WAYS[PLAIN], data, folds, epochs, 1.0)
    losses = [member.trained.losses[-1] for posterior in plain for member in posterior.mixture]
    temperature = 2 * float(np.mean(losses))
    lines, unit = [], float("nan")
    for label, way in [(label, way) for label, way in WAYS.items() if label in (PLAIN, *ways)]:
        posteriors = plain if label == PLAIN else trained(way, data, folds, epochs, temperature)
        scores = list(scored(way, posteriors, data, folds))
        seconds = float(np.mean([score.seconds for score in scores]))
        unit = seconds if label == PLAIN else unit
        alone, together = (with_error([score[k] for score in scores]) for k in range(2))
        lines.append(f"| {name} | {label} | {alone} | {together} | {seconds / unit:.1f} |")
        print(lines[-1], flush=True)
    for structure in ("kron", "diag") if find_spec("laplace") else ():
        values = [by_laplace_torch(structure, *each[:1], data, each[1]) for each in zip(plain, folds, strict=True)]
        lines.append(f"| {name} | laplace-torch, {structure} | {with_error(values)} | . | . |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds uci/<set>/data.csv.gz")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--folds", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), help="only these, beside the plain networks")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    header = ["| set | method | NLL alone | NLL with theta0 | time |", "|---|---|---|---|---|"]
    print("\n".join(header))
    lines = []
    for name in asked.sets:
        x, y = datasets.load(name, asked.data)
        lines += page(name, (x, y), datasets.splits(len(y), asked.folds), asked.epochs, asked.ways)
    if asked.out is not None:
        about = setting("torch", "numba", rounds=1).rsplit("\n", 1)[0]
        how = f"{asked.folds} folds, {asked.epochs} epochs, {MEMBERS} members, mean NLL ± its standard error over folds"
        asked.out.write_text("\n".join(["# Laws on the UCI sets", "", about, f"- {how}", "", *header, *lines, ""]))


if __name__ == "__main__":
    main()
