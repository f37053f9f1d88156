"""VGG16 for images of 32 x 32 pixels, layer by layer as in the code of the SWAG paper (Maddox et al. 2019).

Thirteen convolutions in five blocks, each block halved by its largest values, then three linear layers with dropout
before the first two. `width` multiplies channels and hidden units: cost goes with its square.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
_HIDDEN = 512
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of red, green and blue, as in that code


class VGG16(nn.Module):
    """Images with numbers from 0 to 1 -> one score for each class.

    They are normalised inside, so that whatever is done to images (shifts, corruptions, other sets) is done in their
    own units, and the black border of a shifted image is black.

    >>> sum(parameter.numel() for parameter in VGG16().parameters())
    15245130
    >>> VGG16(width=0.125, batch_norm=True)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, classes: int = 10, *, width: float = 1.0, batch_norm: bool = False, dropout: float = 0.5
    ) -> None:
        super().__init__()
        if not width > 0:
            raise ValueError(f"width multiplies the channels, and must be above zero; it is {width}")
        self.register_buffer("mean", torch.tensor(_MEAN).reshape(3, 1, 1))
        self.register_buffer("std", torch.tensor(_STD).reshape(3, 1, 1))
        layers: list[nn.Module] = []
        channels = 3
        for block in _BLOCKS:
            for wide in block:
                own = max(1, round(width * wide))
                layers += [nn.Conv2d(channels, own, kernel_size=3, padding=1)]
                layers += [nn.BatchNorm2d(own)] if batch_norm else []
                layers += [nn.ReLU()]
                channels = own
            layers += [nn.MaxPool2d(kernel_size=2, stride=2)]
        hidden = max(1, round(width * _HIDDEN))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(channels, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )
        for layer in self.features:
            if isinstance(layer, nn.Conv2d) and layer.bias is not None:
                nn.init.normal_(layer.weight, std=math.sqrt(2 / (9 * layer.out_channels)))
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        normalised = (x - self.mean) / self.std
        return self.classifier(self.features(normalised).flatten(1))
