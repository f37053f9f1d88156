"""CIFAR-10 in its official binary form, found on disk or downloaded and checked; the pickled form is never read.

The images come from the first of these that has them:

1. a root folder (given, or named by WHEREFROM_DATA) with `cifar10/cifar-10-batches-bin/`, `cifar-10-batches-bin/`, or
   `cifar-10-binary.tar.gz` in either place; the files may have any number of images, which are checked one by one;
2. the official archive in the user's cache, downloaded there the first time, or put there by hand.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor

from wherefrom.cache import user_cache
from wherefrom.reproduce.fetching import beside, fetch, named_root
from wherefrom.training import streams

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILE = "test_batch.bin"
FOLDER, ARCHIVE = "cifar-10-batches-bin", "cifar-10-binary.tar.gz"
URL, MD5 = f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}", "c32a1d4ab5d03f1284b67883e8d87530"

SHAPE = (3, 32, 32)
_RECORD = 1 + 3 * 32 * 32  # a label, then red, green and blue, row by row


@dataclass(frozen=True, eq=False)
class Images:
    """Pictures between 0 (black) and 1, with the numbers of their classes."""

    x: Tensor  # (images, 3, 32, 32)
    y: Tensor  # (images,)

    def __len__(self) -> int:
        return len(self.y)

    def some(self, count: int | None) -> Images:
        """About `count` of them, the first of each class, in their own order; all of them if there are no more."""
        if count is None or count >= len(self):
            return self
        each = torch.nn.functional.one_hot(self.y, len(CLASSES)).cumsum(0)  # how many of each class so far
        place = each.gather(1, self.y.unsqueeze(1)).squeeze(1)  # of each image among those of its class
        order = (place * len(self) + torch.arange(len(self))).argsort()
        chosen = order[:count].sort().values
        return Images(self.x[chosen], self.y[chosen])


def load(root: str | os.PathLike[str] | None = None, progress: bool | None = None) -> tuple[Images, Images]:
    """The images to train on and those to test on; `progress=None` shows a download's bar on a terminal."""
    root = named_root(root)
    if root and (found := _within(root)):
        with _blaming(found, f"Put the official {FOLDER} there, or remove it to have {ARCHIVE} downloaded"):
            return _decoded(_read_archive(found) if found.is_file() else _read_folder(found))
    kept = user_cache() / "cifar10" / ARCHIVE
    by_hand = (
        f"By hand: put {ARCHIVE} (from {URL}) into {kept.parent}, or its folder {FOLDER} into a folder that is given "
        "as --data or WHEREFROM_DATA"
    )
    if not kept.exists():
        _download(kept, by_hand, progress)
    with _blaming(kept, f"Remove it to have it downloaded again. {by_hand}"):
        if (found_md5 := _md5(kept)) != MD5:
            raise ValueError(f"it is not the official archive: its md5 is {found_md5}, not {MD5}")
        return _decoded(_read_archive(kept))


def made(count: int, seed: int = 0) -> Images:
    """Images that need no file: stripes whose direction and colour are those of their class, under noise.

    >>> made(20).x.shape
    torch.Size([20, 3, 32, 32])
    """
    generator = streams.torch_generator(seed, "made images", count)
    y = torch.arange(count) % len(CLASSES)
    angle = torch.pi * y / len(CLASSES)
    across = torch.linspace(-8, 8, 32)
    place = torch.cos(angle).reshape(-1, 1, 1) * across + torch.sin(angle).reshape(-1, 1, 1) * across.unsqueeze(1)
    phase = 2 * torch.pi * torch.rand(count, 1, 1, generator=generator)
    colour = 0.5 + 0.5 * torch.cos(2 * angle.unsqueeze(1) + torch.tensor([0.0, 2.0, 4.0]))
    stripes = colour.reshape(-1, 3, 1, 1) * (0.5 + 0.5 * torch.sin(place + phase)).unsqueeze(1)
    noisy = stripes + 0.2 * torch.randn(count, *SHAPE, generator=generator)
    return Images(noisy.clamp(0, 1), y)


def decode(content: bytes, what: str) -> tuple[Tensor, Tensor]:
    """Pixels and labels of one official file, of any number of images.  # (images, 3, 32, 32) bytes, (images,)

    >>> pixels, labels = decode(bytes([7]) + bytes(3072), "a black horse")
    >>> pixels.shape, labels
    (torch.Size([1, 3, 32, 32]), tensor([7]))
    """
    if not content or len(content) % _RECORD:
        raise ValueError(
            f"{what} has {len(content):,} bytes, which is no whole number of images of {_RECORD:,} bytes each "
            "(a label, and 3 x 32 x 32 pixels)"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    labels = records[:, 0].astype(np.int64)
    if (wrong := np.flatnonzero(labels >= len(CLASSES))).size:
        first = wrong[0]
        raise ValueError(
            f"{what}: image {first} has the label {labels[first]}, and there are only the classes 0 to "
            f"{len(CLASSES) - 1}{f' ({wrong.size} such images)' if wrong.size > 1 else ''}"
        )
    return torch.from_numpy(records[:, 1:].reshape(-1, *SHAPE).copy()), torch.from_numpy(labels)


def as_images(pixels: Tensor, labels: Tensor) -> Images:
    """Bytes as numbers between 0 and 1."""
    return Images(pixels.float().div_(255), labels)


def _decoded(files: Mapping[str, bytes]) -> tuple[Images, Images]:
    missing = [name for name in (*TRAIN_FILES, TEST_FILE) if name not in files]
    if missing:
        raise ValueError(f"there is no {', '.join(missing)} in it")
    parts = [decode(files[name], name) for name in TRAIN_FILES]
    train = as_images(torch.cat([pixels for pixels, _ in parts]), torch.cat([labels for _, labels in parts]))
    return train, as_images(*decode(files[TEST_FILE], TEST_FILE))


def _within(root: Path) -> Path | None:
    """Find the images in a root folder: their folder, or the archive."""
    places = [root / "cifar10" / FOLDER, root / FOLDER, root / "cifar10" / ARCHIVE, root / ARCHIVE]
    if (root / TEST_FILE).exists():
        places = [root]  # the folder itself was named
    return next((place for place in places if place.exists()), None)


def _read_folder(folder: Path) -> dict[str, bytes]:
    return {name: path.read_bytes() for name in (*TRAIN_FILES, TEST_FILE) if (path := folder / name).is_file()}


def _read_archive(path: Path) -> dict[str, bytes]:
    """The files of a tar that have the expected names, in whichever folder; nothing is unpacked to disk."""
    found: dict[str, bytes] = {}
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            if member.isfile() and name in (*TRAIN_FILES, TEST_FILE) and (file := archive.extractfile(member)):
                found[name] = file.read()
    return found


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _download(kept: Path, by_hand: str, progress: bool | None) -> None:
    """Fetch the archive beside its place, and keep it only once it is whole and has the published checksum."""
    with beside(kept, by_hand) as place:
        fetch(URL, f"md5:{MD5}", place / kept.name, by_hand, progress)


@contextmanager
def _blaming(path: Path, advice: str) -> Iterator[None]:
    """Say of which file it is that something is wrong with, and what to do."""
    try:
        yield
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be used: it is not a whole tar.gz file ({error}). {advice}") from error
    except ValueError as error:
        raise ValueError(f"{path} cannot be used: {error}. {advice}") from error
