"""The neighbours, what pip installs for each, and what they are compared in."""

from __future__ import annotations

from dataclasses import dataclass

OURS = "wherefrom"
LOOP = "plain PyTorch loop"
DEFAULTS = "tables, by defaults"  # a frame goes in, and a distribution for each new row comes out


@dataclass(frozen=True)
class Neighbour:
    """A library, and the methods of it that are compared with ours of the same name.

    packages: what pip is asked for; the first one is the library.
    module: the part of this folder that trains with it; empty for libraries of trees, which `tabular` has.
    """

    packages: tuple[str, ...]
    methods: tuple[str, ...]
    module: str = ""


NETWORKS = ("deep ensemble", "SWAG", "MC-dropout", "Laplace")
NEIGHBOURS = {
    LOOP: Neighbour((), ("deep ensemble", "MC-dropout"), "plain_loop"),
    "torch-uncertainty": Neighbour(("torch-uncertainty[cpu]", "laplace-torch"), NETWORKS, "by_torch_uncertainty"),
    "lightning-uq-box": Neighbour(("lightning-uq-box",), NETWORKS[:3], "by_lightning_uq_box"),
    "laplace-torch": Neighbour(("laplace-torch",), ("Laplace",), "by_laplace_torch"),
    "skorch": Neighbour(("skorch",), ("deep ensemble", "MC-dropout"), "by_skorch"),
    "probly": Neighbour(("probly",), ("deep ensemble", "MC-dropout"), "by_probly"),
    "posteriors": Neighbour(("posteriors",), ("SGLD",), "by_posteriors"),
    "ivon-opt": Neighbour(("ivon-opt",), ("IVON",), "by_ivon_opt"),
    "bde": Neighbour(("sklearn-contrib-bde",), ("Bayesian ensemble",), "by_bde"),
    "fortuna": Neighbour(("aws-fortuna", "pandas<3", "jax<0.4.36", "jaxlib<0.4.36"), ("deep ensemble",), "by_fortuna"),
    "catboost": Neighbour(("catboost",), (DEFAULTS,)),
    "lightgbm": Neighbour(("lightgbm",), (DEFAULTS,)),
    "ngboost": Neighbour(("ngboost",), (DEFAULTS,)),
}
METHODS = tuple(dict.fromkeys(method for each in NEIGHBOURS.values() for method in each.methods))
