"""The images of the CIFAR-10 study: where they are looked for, what is wrong with bad files, and what spoils them.

No test uses the internet: a server on this machine stands in for the official one.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from conftest import data_root
from wherefrom.reproduce.cifar10 import data, shift
from wherefrom.reproduce.cifar10.vgg import VGG16

ROOT = data_root()  # now: the tests themselves forget WHEREFROM_DATA
FILES = (*data.TRAIN_FILES, data.TEST_FILE)


@pytest.fixture(autouse=True)
def _nothing_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, no named data folder, and an address where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setattr(data, "URL", f"http://127.0.0.1:{unused.getsockname()[1]}/{data.ARCHIVE}")
    monkeypatch.setenv("WHEREFROM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("WHEREFROM_DATA", raising=False)


def records(count: int, seed: int = 0) -> bytes:
    """So many images in the official layout, classes one after the other."""
    random = np.random.default_rng(seed)
    rows = random.integers(0, 256, (count, 3073), dtype=np.uint8)
    rows[:, 0] = np.arange(count) % 10
    return rows.tobytes()


def write(folder: Path, **changed: bytes) -> Path:
    """A folder of six small files, some of which may be other than they should."""
    folder.mkdir(parents=True)
    for number, name in enumerate(FILES):
        (folder / name).write_bytes(changed.get(name.removesuffix(".bin"), records(20 + number, number)))
    return folder


def packed(folder: Path, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for file in sorted(folder.iterdir()):
            archive.add(file, f"{data.FOLDER}/{file.name}")
    return path


# ---------------------------------------------------------------------- finding and reading


@pytest.mark.parametrize("place", [f"cifar10/{data.FOLDER}", data.FOLDER])
def test_a_folder_is_read_from_the_root(tmp_path, place):
    folder = write(tmp_path / "root" / place)
    train, test = data.load(tmp_path / "root")
    assert train.x.shape == (20 + 21 + 22 + 23 + 24, 3, 32, 32)
    assert test.x.shape == (25, 3, 32, 32)
    first = np.frombuffer((folder / "data_batch_1.bin").read_bytes(), np.uint8)[:3073]
    assert int(train.y[0]) == first[0]
    # red first, row by row
    np.testing.assert_allclose(train.x[0, 0, 0, :3].numpy(), first[1:4] / 255, rtol=1e-6)
    np.testing.assert_allclose(float(train.x[0, 2, 31, 31]), first[-1] / 255, rtol=1e-6)


def test_the_folder_itself_can_be_named(tmp_path, monkeypatch):
    monkeypatch.setenv("WHEREFROM_DATA", str(write(tmp_path / data.FOLDER)))
    assert len(data.load()[1]) == 25


@pytest.mark.parametrize("place", [f"cifar10/{data.ARCHIVE}", data.ARCHIVE])
def test_an_archive_is_read_from_the_root_without_unpacking(tmp_path, place):
    folder = write(tmp_path / "elsewhere" / data.FOLDER)
    path = packed(folder, tmp_path / "root" / place)
    train, test = data.load(tmp_path / "root")
    expected_train, expected_test = data.load(folder)
    assert torch.equal(train.x, expected_train.x)
    assert torch.equal(test.y, expected_test.y)
    assert [file.name for file in path.parent.iterdir()] == [data.ARCHIVE]


def test_links_and_odd_paths_of_an_archive_are_passed_over(tmp_path):
    folder = write(tmp_path / "elsewhere" / data.FOLDER)
    path = tmp_path / "root" / data.ARCHIVE
    packed(folder, path)
    with gzip.open(path) as file:
        plain = io.BytesIO(file.read())
    with tarfile.open(fileobj=plain, mode="a") as archive:
        link = tarfile.TarInfo("../../test_batch.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    path.write_bytes(gzip.compress(plain.getvalue()))
    assert len(data.load(tmp_path / "root")[1]) == 25


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "test_batch.bin has 0 bytes"),
        (records(3)[:-1], "test_batch.bin has 9,218 bytes, which is no whole number of images"),
        (records(11)[: 10 * 3073] + b"\x4d" + bytes(3072), "test_batch.bin: image 10 has the label 77"),
    ],
)
def test_bad_sizes_and_labels_are_named(tmp_path, content, complaint):
    folder = write(tmp_path / data.FOLDER, test_batch=content)
    with pytest.raises(ValueError, match=complaint) as error:
        data.load(tmp_path)
    assert str(folder) in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    (write(tmp_path / data.FOLDER) / "data_batch_3.bin").unlink()
    with pytest.raises(ValueError, match=r"there is no data_batch_3\.bin in it"):
        data.load(tmp_path)


def test_a_broken_archive_is_named(tmp_path):
    whole = packed(write(tmp_path / "elsewhere" / data.FOLDER), tmp_path / "whole.tar.gz").read_bytes()
    for content in (b"no archive at all", whole[: len(whole) // 2]):
        (tmp_path / data.ARCHIVE).write_bytes(content)
        with pytest.raises(ValueError, match=r"not a whole tar\.gz file"):
            data.load(tmp_path)


def test_a_root_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="--data or WHEREFROM_DATA"):
        data.load(tmp_path / "nowhere")


def test_some_are_the_first_of_each_class():
    images = data.Images(torch.arange(12.0).reshape(12, 1, 1, 1), torch.tensor([3, 3, 3, 3, 1, 1, 1, 1, 0, 0, 0, 0]))
    few = images.some(6)
    assert few.x.flatten().tolist() == [0, 1, 4, 5, 8, 9]
    assert images.some(None) is images
    assert images.some(50) is images
    assert len(images.some(5)) == 5


@pytest.mark.real_data
def test_the_real_images():
    if ROOT is None or not (ROOT / "cifar10").is_dir():
        pytest.skip("CIFAR-10 is not here: set WHEREFROM_DATA to a folder that holds cifar10/cifar-10-batches-bin")
    train, test = data.load(ROOT)
    assert len(train) >= 10_000
    assert test.some(200).y.bincount().tolist() == [20] * 10
    assert 0.4 < float(train.x.mean()) < 0.55
    other = shift.other_sets(ROOT, 50)
    assert all(x.shape == (50, 3, 32, 32) for x in other.values())


# ---------------------------------------------------------------------- downloads


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """A server that gives the archive out."""
    pytest.importorskip("pooch", reason="pooch is not installed: pip install 'wherefrom[dev]'")
    content = b""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if content else 404)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    def give(archive: bytes) -> None:
        nonlocal content
        content = archive

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        monkeypatch.setattr(data, "URL", f"http://127.0.0.1:{running.server_port}/{data.ARCHIVE}")
        yield give
        running.shutdown()
        thread.join()


def test_a_download_is_kept_and_used_again(tmp_path, monkeypatch, server):
    archive = packed(write(tmp_path / "made" / data.FOLDER), tmp_path / "made.tar.gz").read_bytes()
    monkeypatch.setattr(data, "MD5", hashlib.md5(archive).hexdigest())
    server(archive)
    assert len(data.load()[1]) == 25
    assert [path.name for path in (tmp_path / "cache" / "cifar10").iterdir()] == [data.ARCHIVE]
    server(b"")
    assert len(data.load()[1]) == 25


def test_a_download_with_another_checksum_is_not_kept(tmp_path, server):
    server(packed(write(tmp_path / "made" / data.FOLDER), tmp_path / "made.tar.gz").read_bytes())
    with pytest.raises(OSError, match="checksum") as error:
        data.load()
    assert "By hand" in str(error.value)
    assert not list((tmp_path / "cache" / "cifar10").iterdir())


def test_a_file_in_the_cache_is_checked_too(tmp_path):
    packed(write(tmp_path / "made" / data.FOLDER), tmp_path / "cache" / "cifar10" / data.ARCHIVE)
    with pytest.raises(ValueError, match="it is not the official archive: its md5 is"):
        data.load()


def test_without_a_connection_the_way_by_hand_is_told(server):
    server(b"")
    with pytest.raises(OSError, match=r"404.*By hand: put cifar-10-binary\.tar\.gz"):
        data.load()


# ---------------------------------------------------------------------- the network


def test_the_network_is_the_swag_papers():
    network = VGG16(batch_norm=True)
    convolutions = [layer for layer in network.features if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [64] * 2 + [128] * 2 + [256] * 3 + [512] * 6
    assert sum(isinstance(layer, nn.MaxPool2d) for layer in network.features) == 5
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in network.features) == 13
    assert [type(layer).__name__ for layer in network.classifier] == [
        "Dropout", "Linear", "ReLU", "Dropout", "Linear", "ReLU", "Linear",
    ]  # fmt: skip
    assert all(layer.p == 0.5 for layer in network.classifier if isinstance(layer, nn.Dropout))
    for layer in convolutions[4:]:  # enough weights to tell
        assert float(layer.weight.detach().std()) == pytest.approx((2 / (9 * layer.out_channels)) ** 0.5, rel=0.02)
        assert not layer.bias.any()


def test_the_network_normalises_its_images():
    network = VGG16(width=0.05).eval()
    seen = []
    network.features.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    network(torch.full((1, 3, 32, 32), 0.5))
    expected = (0.5 - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
    np.testing.assert_allclose(seen[0][0, :, 7, 7].numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_the_network_can_be_stacked(batch_norm):
    networks = [VGG16(width=0.05, batch_norm=batch_norm).eval() for _ in range(3)]
    tensors, buffers = torch.func.stack_module_state(networks)
    x = torch.rand(4, 3, 32, 32)
    together = torch.vmap(lambda p, b: torch.func.functional_call(networks[0], (p, b), (x,)))(tensors, buffers)
    for one, answers in zip(networks, together, strict=True):
        torch.testing.assert_close(answers, one(x), rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------- corruptions, and other things


@pytest.mark.parametrize("name", shift.CORRUPTIONS)
def test_corruptions_grow_with_their_severity(name):
    x = 0.2 + 0.6 * torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    spoiled = [shift.corrupt(x, name, severity) for severity in shift.SEVERITIES]
    distances = [float((one - x).square().mean()) for one in spoiled]
    assert distances[0] > 0
    assert distances == sorted(distances)
    assert all(float(one.min()) >= 0 and float(one.max()) <= 1 for one in spoiled)
    assert torch.equal(spoiled[2], shift.corrupt(x, name, 3))


def test_noise_has_its_strength_and_follows_the_seed():
    x = torch.full((20, 3, 32, 32), 0.5)
    assert float((shift.corrupt(x, "noise", 5) - x).std()) == pytest.approx(0.10, rel=0.02)
    assert not torch.equal(shift.corrupt(x, "noise", 5), shift.corrupt(x, "noise", 5, seed=1))


def test_blur_is_a_gaussian_and_keeps_the_mean():
    point = torch.zeros(1, 3, 32, 32)
    point[:, :, 16, 16] = 1.0
    spread = shift.corrupt(point, "blur", 5)
    assert float(spread[0, 0].sum()) == pytest.approx(1.0, rel=1e-5)
    assert float(spread[0, 0, 16, 16] / spread[0, 0, 16, 17]) == pytest.approx(np.exp(0.5), rel=1e-4)
    assert torch.allclose(shift.corrupt(torch.full_like(point, 0.3), "blur", 5), torch.tensor(0.3))


def test_brightness_adds_to_the_value_of_hue_saturation_and_value():
    import colorsys

    x = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    x[0, :, 0, 0] = 0.0
    bright = shift.corrupt(x, "brightness", 3)
    for row, column in ((0, 0), (3, 4), (31, 31), (10, 2)):
        hue, saturation, value = colorsys.rgb_to_hsv(*x[0, :, row, column].tolist())
        expected = colorsys.hsv_to_rgb(hue, saturation, min(1.0, value + 0.15))
        np.testing.assert_allclose(bright[0, :, row, column].numpy(), expected, atol=1e-6)


def test_contrast_keeps_each_colours_mean():
    x = torch.rand(2, 3, 32, 32)
    grey = shift.corrupt(x, "contrast", 5)
    torch.testing.assert_close(grey.mean((2, 3)), x.mean((2, 3)))
    torch.testing.assert_close(grey.std((2, 3)), 0.15 * x.std((2, 3)))


def test_what_corruptions_there_are():
    with pytest.raises(ValueError, match="there are noise, blur, contrast, brightness"):
        shift.corrupt(torch.zeros(1, 3, 32, 32), "rain", 1)
    with pytest.raises(ValueError, match="from 1 to 5, not 6"):
        shift.corrupt(torch.zeros(1, 3, 32, 32), "noise", 6)


def test_other_sets_are_those_that_are_there(tmp_path):
    assert shift.other_sets(tmp_path) == {}
    assert shift.other_sets(None) == {}
    random = np.random.default_rng(0)
    np.savez(tmp_path / "svhn_few.npz", x=random.integers(0, 256, (7, 32, 32, 3), dtype=np.uint8))
    grey = random.integers(0, 256, (9, 28, 28), dtype=np.uint8)
    official = tmp_path / "fashion_mnist" / "t10k-images-idx3-ubyte.gz"
    official.parent.mkdir()
    official.write_bytes(gzip.compress(np.array([2051, 9, 28, 28], ">u4").tobytes() + grey.tobytes()))
    found = shift.other_sets(tmp_path, 5)
    assert {name: tuple(x.shape) for name, x in found.items()} == {"fashion": (5, 3, 32, 32), "svhn": (5, 3, 32, 32)}
    assert torch.equal(found["fashion"][:, 0], found["fashion"][:, 2])
    assert float(found["fashion"].mean()) == pytest.approx(grey[:5].mean() / 255, abs=0.01)


@pytest.mark.parametrize("content", [b"no zip", b""])
def test_a_bad_set_of_other_things_is_named(tmp_path, content):
    (tmp_path / "svhn.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"svhn\.npz cannot be used.*Move it away"):
        shift.other_sets(tmp_path)


def test_what_an_npz_must_hold(tmp_path):
    np.savez(tmp_path / "svhn.npz", pictures=np.zeros(3))
    with pytest.raises(ValueError, match="there is no x_test or x in it, only pictures"):
        shift.other_sets(tmp_path)
    np.savez(tmp_path / "svhn.npz", x=np.zeros((3, 32)))
    with pytest.raises(ValueError, match="images must be bytes of shape"):
        shift.other_sets(tmp_path)
