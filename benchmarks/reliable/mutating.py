"""Files that somebody changed: bytes, JSON, headers of tensors, manifests, links; with the digests written anew or not.

Everything follows from random numbers: `Mutation.of(files, random.Random(3))` is the same change every time.
"""

from __future__ import annotations

import copy
import json
import os
import random
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wherefrom.files.codec import REGISTRY
from wherefrom.files.reading import NO_DIGEST, SEAL, sha256

MANIFEST = "manifest.json"
_ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 1000, 2**31, 2**40, 2**63, 2**64, 10**30, -(2**40)),
    *(0.5, -0.5, 1e-300, 1e300, -1e300, "", "os.system", "posterior", "../../etc/passwd", "é\u0000\ud7ff", "1", "nan"),
    *([], {}, [[]], [0], [1, 2, 3], [None], {"a": 1}, {"$": "code", "name": "os.system", "as_written": "it"}),
    *({"$": "class", "name": "os.system"}, {"$": "class", "name": "torch.optim.lr_scheduler"}, {"$": "SWAG"}, {"$": 3}),
    *({"$": "float", "value": "inf"}, {"$": "float", "value": "nan"}, {"$": "float", "value": "1e5000"}),
    *({"$": "fraction", "value": "1/0"}, {"$": "fraction", "value": "1e999999999"}, {"$": "shape", "value": [2**60]}),
    *({"$": "dtype", "value": "float32"}, {"$": "dtype", "value": "load"}, {"$": "device", "value": "cuda:77"}),
    *({"$": "tensor", "name": "nothing"}, {"$": "list", "items": []}, {"$": "map", "items": [[[1], 2]]}),
    {"$": "map", "items": [[{"$": "list", "items": []}, 1]]},
    {"$": "distribution", "name": "Normal", "dtype": {"$": "dtype", "value": "float32"}, "arguments": {"loc": 0}},
    {"$": "distribution", "name": "Distribution", "dtype": {"$": "dtype", "value": "float32"}, "arguments": {}},
]


@dataclass(frozen=True)
class Mutation:
    """A change of one file: its name in the run, and the new content; None if the file is made into something else.

    is_signed_anew: True if the digests are written anew, so that only the content can tell.
    special: "missing", "link", "pipe", "folder" or "".
    """

    words: str
    name: str
    content: bytes
    is_signed_anew: bool
    special: str = ""

    @classmethod
    def of(cls, files: dict[str, bytes], chance: random.Random) -> Mutation:
        """Return a change at random.

        files: name -> content, `manifest.json` among them for a run; a single file has one name.
        """
        name = chance.choice(sorted(files))
        content, is_anew = files[name], chance.random() < 0.7
        if chance.random() < 0.01 and MANIFEST in files:
            special = chance.choice(["missing", "link", "pipe", "folder"])
            return cls(special, name, b"", False, special)
        ways: list[Callable[[random.Random, bytes], bytes]] = [_bytes]
        if name.endswith(".json"):
            ways += [_json] * 4
        else:
            ways += [_header] * 2 + [_about] * 4 + [_numbers]
        way = chance.choice(ways)
        changed = content
        for _ in range(20):
            changed = way(chance, content)
            if changed != content:
                break
        return cls(f"{way.__name__[1:]} of {name}", name, changed, is_anew)


def sealed(content: bytes) -> bytes:
    """Return the content with its seal written anew, if it has one."""
    blank = re.sub(SEAL.encode() + b"[0-9a-f]{64}", (SEAL + NO_DIGEST).encode(), content, count=1)
    return blank.replace((SEAL + NO_DIGEST).encode(), (SEAL + sha256(blank)).encode(), 1)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a run by their names in it, the manifest among them."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    result = {MANIFEST: (folder / MANIFEST).read_bytes()}
    for name, entry in manifest["files"].items():
        stem, _, suffix = name.rpartition(".")
        result[name] = (folder / f"{stem}.{entry['token']}.{suffix}").read_bytes()
    return result


def apply(mutation: Mutation, files: dict[str, bytes], folder: Path) -> None:
    """Write a run, or a single file, with one change into a folder, which is emptied before."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if MANIFEST not in files:
        content = sealed(mutation.content) if mutation.is_signed_anew else mutation.content
        (folder / mutation.name).write_bytes(content)
        return
    manifest = json.loads(files[MANIFEST])
    for name, content in files.items():
        changed = mutation.content if name == mutation.name and not mutation.special else content
        if name == MANIFEST:
            continue
        entry = manifest["files"][name]
        stem, _, suffix = name.rpartition(".")
        path = folder / f"{stem}.{entry['token']}.{suffix}"
        if name == mutation.name and mutation.special:
            _make_special(path, mutation.special, content)
            continue
        path.write_bytes(changed)
        if mutation.is_signed_anew:
            entry |= {"bytes": len(changed), "sha256": sha256(changed)}
    text = json.dumps(manifest, indent=1).encode()
    if mutation.name == MANIFEST:
        if mutation.special:
            _make_special(folder / MANIFEST, mutation.special, files[MANIFEST])
            return
        text = mutation.content
    (folder / MANIFEST).write_bytes(
        sealed(text) if mutation.is_signed_anew else text if mutation.name == MANIFEST else files[MANIFEST]
    )


def _make_special(path: Path, kind: str, content: bytes) -> None:
    if kind == "link":
        elsewhere = path.with_name("elsewhere")
        elsewhere.write_bytes(content)
        path.symlink_to(elsewhere)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()


# ---------------------------------------------------------------------- ways to change


def _bytes(chance: random.Random, content: bytes) -> bytes:
    data = bytearray(content)
    at = chance.randrange(len(data) + 1)
    match chance.randrange(7):
        case 0:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        case 1:
            del data[at:]
        case 2:
            del data[at : at + chance.randrange(1, 40)]
        case 3:
            data[at:at] = chance.randbytes(chance.randrange(1, 40))
        case 4:
            data[at : at + 8] = chance.choice([b"\xff" * 8, b"\x00" * 8, struct.pack("<Q", 2**62)])
        case 5:
            data[at : at + 64] = data[:64]
        case 6:
            data += data[at:]
    return bytes(data)


def _json(chance: random.Random, content: bytes) -> bytes:
    if chance.random() < 0.05:
        return chance.choice(
            [b"", b"[]", b"{}", b"[" * 100_000, b'{"a":' * 100_000, b"null", b"\xff\xfe", b'{"a":1,"a":2}']
        )
    return json.dumps(_changed(chance, json.loads(content)), indent=1).encode()


def _header(chance: random.Random, content: bytes) -> bytes:
    header, numbers = _split(content)
    names = [name for name in header if name != "__metadata__"]
    if not names:
        return content
    name = chance.choice(names)
    entry = header[name]
    match chance.randrange(6):
        case 0:
            entry["shape"] = chance.choice(
                [[], [0], [2**40, 2**40], [-1], [1.5], entry["shape"] * 2, entry["shape"][::-1]]
            )
        case 1:
            entry["dtype"] = chance.choice(["F64", "F32", "F16", "I64", "BOOL", "U8", "XX", None, 7])
        case 2:
            entry["data_offsets"] = chance.choice(
                [[0, 2**60], [0, 0], [-8, 0], [5], [None, 3], entry["data_offsets"][::-1]]
            )
        case 3:
            del header[name]
        case 4:
            header[chance.choice(["__metadata__", "other"])] = header.pop(name)
        case 5:
            other = chance.choice(names)
            header[name], header[other] = header[other], header[name]
    return _joined(header, numbers)


def _about(chance: random.Random, content: bytes) -> bytes:
    header, numbers = _split(content)
    metadata = header.get("__metadata__")
    if not metadata:
        return _header(chance, content)
    name = chance.choice(sorted(metadata))
    if name == "about" and chance.random() < 0.95:
        metadata[name] = json.dumps(_changed(chance, json.loads(metadata[name])))
    else:
        metadata[name] = chance.choice(["", "1", "99", "-1", "{", "[]", "null", 3, None, {}])
    return _joined(header, numbers)


def _numbers(chance: random.Random, content: bytes) -> bytes:
    header, numbers = _split(content)
    names = [name for name in header if name != "__metadata__"]
    if not names:
        return content
    start, end = header[chance.choice(names)]["data_offsets"]
    size = end - start
    pattern = chance.choice([b"\x00", b"\xff", b"\x00\x00\x80\x7f", b"\x00\x00\xc0\x7f", chance.randbytes(7), b"\x01"])
    return content[: len(content) - len(numbers) + start] + (pattern * (size + 1))[:size] + numbers[end:]


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def _joined(header: dict[str, Any], numbers: bytes) -> bytes:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + numbers


def _spots(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in document.items() if isinstance(document, dict) else enumerate(document):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from _spots(value, (*path, key))


def _changed(chance: random.Random, document: Any) -> Any:
    twin = copy.deepcopy(document)
    spots = list(_spots(twin))
    if not spots:
        return {"a": 1}
    path = chance.choice(spots)
    parent = twin
    for key in path[:-1]:
        parent = parent[key]
    key, value = path[-1], parent[path[-1]]
    match chance.randrange(9):
        case 0:
            del parent[key]
        case 1 | 2 | 3:
            parent[key] = copy.deepcopy(chance.choice(_ODD))
        case 4:
            other = chance.choice(spots)
            source = twin
            for step in other:
                source = source[step] if step in source or isinstance(source, list) else None
                if source is None:
                    break
            parent[key] = copy.deepcopy(source)
        case 5 if isinstance(value, int | float) and not isinstance(value, bool):
            parent[key] = chance.choice(
                [-value, value + 1, value * 1000, value + 0.5, str(value), [value], bool(value)]
            )
        case 5 if isinstance(value, str):
            parent[key] = chance.choice([value[:-1], value + "x", value.upper(), value * 50, [value]])
        case 6 if isinstance(value, dict) and "$" in value:
            value["$"] = chance.choice([*sorted(REGISTRY), "tensor", "array", "list", "map", "code", "class", "float"])
        case 6 | 7 if isinstance(value, list) and value:
            parent[key] = chance.choice([value[:-1], value + value, value[::-1], value[:1]])
        case 7 if isinstance(parent, dict):
            parent[f"{key}x"] = parent.pop(key)
        case _:
            nested: Any = value
            for _ in range(chance.choice([1, 3, 70, 200])):
                nested = [nested]
            parent[key] = nested
    return twin
