"""The literature's methods as marginalisations: each is a list of variables for `over`.

| method          | F      | theta0 | h      | t      |
|-----------------|--------|--------|--------|--------|
| one network     | .      | .      | .      | .      |
| deep ensemble   | .      | random | order  | .      |
| SWAG, snapshots | .      | .      | .      | random |
| MC-dropout      | random | .      | .      | .      |
| hyper-ensemble  | .      | random | random | .      |
| multiSWAG       | .      | random | order  | random |
| everything      | random | random | random | random |
"""

from __future__ import annotations

from typing import Any

from wherefrom.laws import SWAG, Snapshots
from wherefrom.variables import BatchOrder, Dropout, Hyperparameters, InitialCondition, Iterations, Jointly

Variables = list[Any]
Setting = Any  # a torch distribution or a list of values


def one_network() -> Variables:
    """Classical training: nothing is random, and nothing is known about doubt."""
    return []


def deep_ensemble(draws: int) -> Variables:
    """Lakshminarayanan et al. (2017): several networks, each with its own initial weights and batch order.

    >>> deep_ensemble(5)
    [Jointly(InitialCondition(draws=None, init=None), BatchOrder(draws=None), draws=5)]
    """
    return [Jointly(InitialCondition(), BatchOrder(), draws=draws)]


def swag(rank: int = 20, start: float = 0.5) -> Variables:
    """Maddox et al. (2019): the Gaussian that the trajectory's later part leaves."""
    return [Iterations(SWAG(rank), start)]


def snapshots(most: int = 20, start: float = 0.5) -> Variables:
    """The later iterates themselves, equally likely."""
    return [Iterations(Snapshots(most), start)]


def mc_dropout(rate: float | None = None) -> Variables:
    """Gal and Ghahramani (2016): the sub-networks that dropout leaves."""
    return [Dropout(rate)]


def hyper_ensemble(draws: int, **settings: Setting) -> Variables:
    """Wenzel et al. (2020): each network its own initial weights and its own settings of the algorithm."""
    return [Jointly(InitialCondition(), Hyperparameters(**settings), BatchOrder(), draws=draws)]


def multi_swag(draws: int, rank: int = 20, start: float = 0.5) -> Variables:
    """Wilson and Izmailov (2020): a deep ensemble, each member with its own SWAG."""
    return [*deep_ensemble(draws), *swag(rank, start)]


def everything(
    draws: int, rank: int = 20, start: float = 0.5, rate: float | None = None, **settings: Setting
) -> Variables:
    """All four: initial weights, settings and batch order drawn together, SWAG, and dropout."""
    return [*hyper_ensemble(draws, **settings), *swag(rank, start), *mc_dropout(rate)]
