"""A member of the mixture, and how the mixture came about."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from wherefrom.files.codec import stored
from wherefrom.training.algorithm import Algorithm
from wherefrom.training.cohort import Trained
from wherefrom.training.network import Network
from wherefrom.variables import Dropout, Run


@stored("Member")
@dataclass(frozen=True, eq=False)
class Member:
    """One member of the mixture: the run that it is, its algorithm, and what its training left."""

    run: Run
    algorithm: Algorithm
    trained: Trained

    @property
    def family(self) -> str:
        return family_of(self.run)

    def on(self, device: torch.device) -> Member:
        """Return the member with its theta on a device; laws are in main memory always."""
        return replace(self, trained=replace(self.trained, last=self.trained.last.to(device)))


@stored("Origin")
@dataclass(frozen=True)
class Origin:
    """The history of a mixture: what became of members that are not in it, and what its design does not say."""

    diverged: tuple[str, ...] = ()  # the runs that did
    is_part: bool = False  # of another posterior's members or variables
    weights: tuple[float, ...] | None = None  # of the members, where they are not those of the design
    dropout: Dropout | None = None  # with which it was trained, also where a part no longer marginalises it
    damaged: tuple[str, ...] = ()  # members whose files were, and that are not in the mixture
    redrawn: tuple[str, ...] = ()  # runs that diverged, and whose place others have taken

    @property
    def missing(self) -> str | None:
        """Members of the design that are not in the mixture, and why; None if all are."""
        parts = (
            f"these diverged: {'; '.join(self.diverged)}" if self.diverged else "",
            f"the files of these are damaged: {'; '.join(self.damaged)}" if self.damaged else "",
        )
        return "; ".join(filter(None, parts)) or None


def family_of(run: Run) -> str:
    return str(run.choices.get("family", ""))


def network_of(networks: dict[str, Network], run: Run) -> Network:
    """A run's network: its family's, at the dropout rate that was drawn for it."""
    network = networks[family_of(run)]
    return network.with_dropout_rate(run.choices["dropout"]) if "dropout" in run.choices else network
