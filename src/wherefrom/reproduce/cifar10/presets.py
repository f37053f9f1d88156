"""What is trained: VGG16 by SGD, at the paper's scale, at one that two cores can do, or in seconds.

Two sets of trainings serve all six combinations. In one the learning rates are fixed: it falls from alpha_u = 0.05 to
alpha_l = 0.01. In the other every network draws its own, alpha_u ~ U[0.04, 0.06] and alpha_l ~ U[0.008, 0.012].
Networks of the same number have the same initial weights and the same batches in both, so that they are paired.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

from torch.distributions import Uniform

import wherefrom as wf
from wherefrom.reproduce.cifar10.data import CLASSES
from wherefrom.reproduce.cifar10.vgg import VGG16

Combination = tuple[str, ...]  # the variables that are marginalised, by the paper's names
Kind = tuple[str, ...]  # those of them that are sampled in prediction: M, t
Rates = Literal["fixed", "drawn"]

OURS = {"M": "F", "t": "t"}  # the paper's names, and the library's
COMBINATIONS: tuple[Combination, ...] = (
    ("theta0",),
    ("theta0", "alpha"),
    ("M", "theta0"),
    ("t", "theta0"),
    ("M", "t", "theta0"),
    ("M", "t", "theta0", "alpha"),
)
UPPER, LOWER = 0.05, 0.01  # alpha_u and alpha_l where they are fixed
UPPER_RANGE, LOWER_RANGE = (0.04, 0.06), (0.008, 0.012)  # of their uniform distributions, where they are drawn


def rates_of(names: Combination) -> Rates:
    """Which of the two sets of trainings a combination is part of."""
    return "drawn" if "alpha" in names else "fixed"


def kind_of(names: Combination) -> Kind:
    """What of a combination is sampled in prediction."""
    return tuple(name for name in names if name in OURS)


def kinds_of(rates: Rates) -> list[Kind]:
    """What has to be sampled of one set of trainings, for all combinations."""
    return list(dict.fromkeys(kind_of(names) for names in COMBINATIONS if rates_of(names) == rates))


@dataclass(frozen=True)
class Preset:
    """The scale of the study. A number of images is the most that are used; None is all that there are."""

    name: str
    width: float  # of the network, as a multiple of VGG16's
    batch_norm: bool
    epochs: int
    members: int
    samples: int  # of each member, where t or M is marginalised
    train_images: int | None
    test_images: int | None
    shifted_images: int  # of every corruption and severity
    other_images: int  # of every set of other things
    start: float = 0.5  # of SWAG, as a fraction of the epochs
    rank: int = 20
    batch_size: int = 128
    momentum: float = 0.9
    weight_decay: float = 5e-4
    is_made: bool = False  # images made by the program itself, for a quick look without data

    def __post_init__(self) -> None:
        for what in ("epochs", "members", "samples", "shifted_images", "other_images"):
            if getattr(self, what) < 1:
                raise ValueError(f"{what} must be at least 1, not {getattr(self, what)}")
        if self.members < 2:
            raise ValueError("an ensemble needs at least 2 members")
        if not self.width > 0:
            raise ValueError(f"the width is a multiple of VGG16's, above zero, not {self.width}")
        left = self.epochs - round(self.start * self.epochs)
        if left < 2:
            raise ValueError(f"{self.epochs} epochs leave SWAG {left} from {self.start:g} of them on; it needs two")

    def but(self, **changes: Any) -> Preset:
        return replace(self, **{name: value for name, value in changes.items() if value is not None})

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that a result depends on, as plain values."""
        return asdict(self)

    @property
    def trained_with(self) -> dict[str, Any]:
        """The settings that a trained network depends on."""
        not_theirs = ("name", "members", "samples", "test_images", "shifted_images", "other_images")
        return {name: value for name, value in self.settings.items() if name not in not_theirs}

    @property
    def model(self) -> partial[VGG16]:
        return partial(VGG16, len(CLASSES), width=self.width, batch_norm=self.batch_norm)

    @property
    def training(self) -> wf.Training:
        """The classical training that everything starts from."""
        return wf.Training(
            model=self.model,
            algorithm=wf.Algorithm(
                "sgd",
                lr=UPPER,
                batch_size=self.batch_size,
                momentum=self.momentum,
                weight_decay=self.weight_decay,
                schedule=wf.schedules.Ramp(final=LOWER / UPPER),
            ),
            epochs=self.epochs,
            likelihood=wf.Classification(classes=len(CLASSES)),
            standardise=False,
            augment=wf.augment.CropAndFlip(padding=4),
        )

    def over(self, rates: Rates, members: int) -> list[Any]:
        """The variables to train over, for so many members."""
        drawn: list[Any] = [wf.InitialCondition(), wf.BatchOrder()]
        if rates == "drawn":
            # The schedule ends at `final` times the first rate. Uniform given that rate, alpha_l = final * lr has the
            # same distribution whatever the rate is: the two are independent.
            low, high = LOWER_RANGE
            drawn.append(
                wf.Hyperparameters(
                    lr=Uniform(*UPPER_RANGE), schedule__final=lambda h: Uniform(low / h["lr"], high / h["lr"])
                )
            )
        return [
            wf.Jointly(*drawn, draws=members),
            wf.Iterations(wf.SWAG(rank=self.rank), start=self.start),
            wf.Dropout(),
        ]


PRESETS = {
    one.name: one
    for one in (
        Preset("paper", 1.0, False, 300, 10, 30, None, None, shifted_images=1000, other_images=2000),
        Preset("cpu", 0.25, True, 22, 5, 12, 10_000, 2_000, shifted_images=250, other_images=300),
        Preset(
            "smoke", 1 / 16, True, 4, 2, 4, 128, 60, shifted_images=10, other_images=10, batch_size=32, is_made=True
        ),
    )
}
