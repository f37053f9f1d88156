"""Images that a network was not trained for: CIFAR-10 spoiled at five severities, and pictures of other things.

The four corruptions and their five strengths are those of CIFAR-10-C (Hendrycks and Dietterich 2019), made on the fly.
Of sets of other things, whichever lie in the data folder are used: Fashion-MNIST and street-view house numbers (SVHN).
"""

from __future__ import annotations

import gzip
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.reproduce.cifar10.data import SHAPE
from wherefrom.training import streams

SEVERITIES = (1, 2, 3, 4, 5)


# ---------------------------------------------------------------------- corruptions


def noise(x: Tensor, strength: float, seed: int = 0) -> Tensor:
    """Gaussian noise of this standard deviation in every pixel and colour."""
    drawn = torch.randn(x.shape, generator=streams.torch_generator(seed, "corruption", "noise"), dtype=x.dtype)
    return x + strength * drawn


def blur(x: Tensor, strength: float, seed: int = 0) -> Tensor:
    """A Gaussian blur of this standard deviation in pixels; beyond its border an image goes on as it ends."""
    reach = math.ceil(4 * strength)
    kernel = torch.exp(-0.5 * (torch.arange(-reach, reach + 1, dtype=x.dtype) / strength).square())
    kernel = (kernel / kernel.sum()).expand(x.shape[1], 1, 1, -1)
    padded = F.pad(x, (reach, reach, reach, reach), mode="replicate")
    rows = F.conv2d(padded, kernel, groups=x.shape[1])
    return F.conv2d(rows, kernel.transpose(2, 3), groups=x.shape[1])


def contrast(x: Tensor, strength: float, seed: int = 0) -> Tensor:
    """Move each colour towards its mean over the image, so that this share of the contrast is left."""
    mean = x.mean((2, 3), keepdim=True)
    return mean + strength * (x - mean)


def brightness(x: Tensor, strength: float, seed: int = 0) -> Tensor:
    """Add to a pixel's brightest colour, and let the others follow: hue and saturation stay."""
    value = x.amax(1, keepdim=True)
    brighter = (value + strength).clamp_max(1)
    return torch.where(value > 0, x * (brighter / value.clamp_min(1e-12)), brighter)


Corruption = Callable[[Tensor, float, int], Tensor]
CORRUPTIONS: dict[str, tuple[Corruption, tuple[float, ...]]] = {
    "noise": (noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "blur": (blur, (0.4, 0.6, 0.7, 0.8, 1.0)),
    "contrast": (contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "brightness": (brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
}


def corrupt(x: Tensor, name: str, severity: int, seed: int = 0) -> Tensor:
    """Images (from 0 to 1) spoiled in one way at a severity from 1 to 5.  # (images, 3, 32, 32)

    >>> corrupt(torch.full((1, 3, 32, 32), 0.5), "brightness", 5).unique()
    tensor([0.8000])
    """
    if name not in CORRUPTIONS:
        raise ValueError(f"there is no corruption {name!r}; there are {', '.join(CORRUPTIONS)}")
    if severity not in SEVERITIES:
        raise ValueError(f"a severity is a whole number from 1 to 5, not {severity!r}")
    change, strengths = CORRUPTIONS[name]
    return change(x, strengths[severity - 1], seed).clamp(0, 1)


# ---------------------------------------------------------------------- other things


OTHER_SETS = ("fashion", "svhn")


def other_sets(root: str | os.PathLike[str] | None = None, count: int | None = None) -> dict[str, Tensor]:
    """The sets of other things that a data folder holds, as images like CIFAR's: up to a limit of each."""
    root = root or os.environ.get("WHEREFROM_DATA")
    if not root:
        return {}
    readers = {"fashion": _fashion, "svhn": _svhn}
    found = {name: readers[name](Path(root)) for name in OTHER_SETS}
    return {name: as_colour(pixels[:count]) for name, pixels in found.items() if pixels is not None}


def as_colour(pixels: NDArray[np.uint8]) -> Tensor:
    """Grey or coloured images of any size as CIFAR's: three colours, 32 x 32 pixels, from 0 to 1.

    >>> as_colour(np.zeros((5, 28, 28), np.uint8)).shape
    torch.Size([5, 3, 32, 32])
    """
    if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4) or not len(pixels):
        raise ValueError(
            f"images must be bytes of shape (images, height, width[, 3]), not {pixels.dtype} of shape {pixels.shape}"
        )
    x = torch.from_numpy(pixels.astype(np.float32) / 255)
    x = x.unsqueeze(1).expand(-1, 3, -1, -1) if x.ndim == 3 else x.permute(0, 3, 1, 2)
    if x.shape[1] != 3:
        raise ValueError(f"coloured images must have three colours, not {x.shape[1]}")
    if x.shape[2:] == SHAPE[1:]:
        return x.contiguous()
    return F.interpolate(x, SHAPE[1:], mode="bilinear", align_corners=False)


def _fashion(root: Path) -> NDArray[np.uint8] | None:
    """An npz file with `x_test`, or the official file of 10,000 test images."""
    if path := _first(root, "fashion_mnist*.npz", "fashion_mnist/*.npz"):
        return _from_npz(path)
    official = "t10k-images-idx3-ubyte.gz"
    if path := _first(root, f"fashion_mnist/{official}", f"FashionMNIST/raw/{official}", f"fashion/{official}"):
        with _blaming(path):
            content = gzip.decompress(path.read_bytes())
            kind, *shape = np.frombuffer(content[:16], ">u4").tolist()
            if kind != 2051:
                raise ValueError(f"it does not begin as a file of images does, by 2051, but by {kind}")
            return np.frombuffer(content[16:], np.uint8).reshape(shape)
    return None


def _svhn(root: Path) -> NDArray[np.uint8] | None:
    """An npz file with `x` or `x_test`, or the official test_32x32.mat, which scipy reads."""
    if path := _first(root, "svhn*.npz", "svhn/*.npz"):
        return _from_npz(path)
    if path := _first(root, "svhn/test_32x32.mat", "test_32x32.mat"):
        try:
            from scipy.io import loadmat  # type: ignore[import-untyped]
        except ImportError as error:
            raise ImportError(f"reading {path} needs scipy: pip install scipy, or move the file away") from error
        with _blaming(path):
            return np.ascontiguousarray(np.asarray(loadmat(path)["X"]).transpose(3, 0, 1, 2))
    return None


def _from_npz(path: Path) -> NDArray[np.uint8]:
    with _blaming(path), np.load(path, allow_pickle=False) as arrays:
        for name in ("x_test", "x"):
            if name in arrays:
                return np.asarray(arrays[name])
        raise ValueError(f"there is no x_test or x in it, only {', '.join(arrays) or 'nothing'}")


def _first(root: Path, *patterns: str) -> Path | None:
    return next((path for pattern in patterns for path in sorted(root.glob(pattern))), None)


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, EOFError, OSError, zlib.error, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be used: {error}. Move it away to go on without it") from error
