"""The trainings: VGG16 by SGD, at the paper's scale, at one that two cores can do, or in seconds.

Two sets of trainings serve all six combinations. In one the learning rates are fixed: the rate falls from
alpha_u = 0.05 to alpha_l = 0.01. In the other every network draws its own, alpha_u ~ U[0.04, 0.06] and
alpha_l ~ U[0.008, 0.012]. Networks of the same number have the same initial weights and the same batches in both, so
that they are paired.

The learning rate follows the code of the SWAG paper (Maddox et al. 2019): it falls between 0.5 and 0.9 of SWAG's
*start* (epoch 161 of 300), and is constant at alpha_l while SWAG collects. The formula as the paper prints it, with all
n_e epochs in the place of SWAG's start, is `schedule="printed"`.
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
Schedule = Literal["swag", "printed"]

OURS = {"M": "F", "t": "t"}  # the paper's names, and the library's
COMBINATIONS: tuple[Combination, ...] = (
    ("theta0",),
    ("theta0", "alpha"),
    ("M", "theta0"),
    ("t", "theta0"),
    ("M", "t", "theta0"),
    ("M", "t", "theta0", "alpha"),
)
PLAIN: Combination = ("theta0",)  # what the others are compared with
UPPER, LOWER = 0.05, 0.01  # alpha_u and alpha_l where they are fixed
UPPER_RANGE, LOWER_RANGE = (0.04, 0.06), (0.008, 0.012)  # of their uniform distributions, where they are drawn


def rates_of(names: Combination) -> Rates:
    """Return which of the two sets of trainings a combination is part of."""
    return "drawn" if "alpha" in names else "fixed"


def kind_of(names: Combination) -> Kind:
    """Return what of a combination is sampled in prediction."""
    return tuple(name for name in names if name in OURS)


def kinds_of(rates: Rates) -> list[Kind]:
    """Return what has to be sampled of one set of trainings, for all combinations."""
    return list(dict.fromkeys(kind_of(names) for names in COMBINATIONS if rates_of(names) == rates))


@dataclass(frozen=True)
class Regime:
    """A strength of regularisation, which decides whether networks fit their training images."""

    name: str
    augment: bool  # whether images are shifted and mirrored
    dropout: float


AUGMENTED = Regime("augmented", augment=True, dropout=0.5)  # as in the code of the SWAG paper
FITTED = Regime("fitted", augment=False, dropout=0.1)  # fits the training images, and becomes over-confident
REGIMES = {regime.augment: regime for regime in (AUGMENTED, FITTED)}


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
    regimes: tuple[Regime, ...] = (AUGMENTED,)
    start: float = 161 / 300  # of SWAG, as a fraction of the epochs
    schedule: Schedule = "swag"  # what the learning rate's n_e is: SWAG's start, or all epochs ("printed")
    snapshots: int = 1  # that SWAG collects in each epoch
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
        if not 0 <= self.start < 1:
            raise ValueError(f"SWAG starts at a fraction of the epochs, from 0 to below 1, not at {self.start:g}")
        if self.schedule not in ("swag", "printed"):
            raise ValueError(f'the schedule is "swag" or "printed", not {self.schedule!r}')
        left = self.epochs - round(self.start * self.epochs)
        if left < 2:
            raise ValueError(f"{self.epochs} epochs leave SWAG {left} from {self.start:g} of them on; it needs two")
        for regime in self.regimes:
            if not 0 < regime.dropout < 1:
                raise ValueError(f"M needs a dropout rate between 0 and 1, not {regime.dropout:g}")

    def but(self, *, augment: bool | None = None, dropout: float | None = None, **changes: Any) -> Preset:
        """Return the preset with other settings; `augment` picks a regime, `dropout` is that of all regimes."""
        regimes = self.regimes if augment is None else (REGIMES[augment],)
        if dropout is not None:
            regimes = tuple(replace(regime, dropout=dropout) for regime in regimes)
        given = {name: value for name, value in changes.items() if value is not None}
        return replace(self, regimes=regimes, **given)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that a result depends on, as plain values."""
        return asdict(self)

    @property
    def trained_with(self) -> dict[str, Any]:
        """The settings that a trained network depends on."""
        not_theirs = ("name", "members", "samples", "test_images", "shifted_images", "other_images", "regimes")
        return {name: value for name, value in self.settings.items() if name not in not_theirs}

    @property
    def first_collected(self) -> int:
        """The epoch, counted from 0, from which on SWAG collects."""
        return round(self.start * self.epochs)

    def model(self, regime: Regime) -> partial[VGG16]:
        return partial(VGG16, len(CLASSES), width=self.width, batch_norm=self.batch_norm, dropout=regime.dropout)

    def training(self, regime: Regime) -> wf.Training:
        """The classical training that everything starts from."""
        whole = self.start if self.schedule == "swag" else 1.0
        return wf.Training(
            model=self.model(regime),
            algorithm=wf.Algorithm(
                "sgd",
                lr=UPPER,
                batch_size=self.batch_size,
                momentum=self.momentum,
                weight_decay=self.weight_decay,
                schedule=wf.schedules.Ramp(final=LOWER / UPPER, start=0.5 * whole, end=0.9 * whole),
            ),
            epochs=self.epochs,
            likelihood=wf.Classification(classes=len(CLASSES)),
            standardise=False,
            augment=wf.augment.CropAndFlip(padding=4) if regime.augment else None,
        )

    def over(self, rates: Rates, members: int, images: int) -> list[Any]:
        """Return the variables to train over, by the numbers of members and images."""
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
        steps = -(-images // min(self.batch_size, images))
        every = max(1, steps // self.snapshots)
        return [
            wf.Jointly(*drawn, draws=members),
            wf.Iterations(wf.SWAG(rank=self.rank), start=self.start, every=every),
            wf.Dropout(),
        ]


BOTH = (AUGMENTED, FITTED)
PRESETS = {
    one.name: one
    for one in (
        Preset("paper", 1.0, False, 300, 10, 30, None, None, shifted_images=1000, other_images=2000),
        Preset("cpu", 0.125, True, 30, 10, 30, 10_000, 5_000, 250, 300, regimes=BOTH, snapshots=2),
        Preset("smoke", 1 / 16, True, 4, 2, 4, 128, 60, 10, 10, regimes=BOTH, batch_size=32, is_made=True),
    )
}
