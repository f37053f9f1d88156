"""Signatures of a run: who has the key vouches for its manifest, and the manifest for every file by its digest.

A key is any file of 16 bytes or more, which signs and verifies (HMAC-SHA256). A key in PEM form is one of Ed25519: the
private one signs, the public one verifies; that needs `pip install 'wherefrom[sign]'`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from wherefrom.files import atomic
from wherefrom.files.errors import FileError, MissingFileError
from wherefrom.files.reading import as_json, read_bytes

_LEAST_KEY, _MOST_KEY, _MOST_SIGNATURE = 16, 2**16, 2**16  # bytes
_FORMAT = 1
_PEM = b"-----BEGIN "


def sign(path: str | Path, manifest: bytes, key: str | Path) -> str:
    """Write the signature of a manifest, and return the name of the method.

    path: the file for the signature.
    manifest: the content to sign.
    key: file of the key.
    """
    secret = _read_key(key)
    if secret.startswith(_PEM):
        method, value = "Ed25519", _private(secret, key).sign(manifest).hex()
    else:
        method, value = "HMAC-SHA256", _hmac(secret, manifest)
    document = {"format": _FORMAT, "method": method, "signature": value}
    atomic.write_text(path, json.dumps(document, indent=1) + "\n")
    return method


def check(path: str | Path, manifest: bytes, key: str | Path) -> None:
    """Raise unless the key's signature of a manifest is in the file."""
    secret = _read_key(key)
    folder = Path(path).parent
    try:
        document = as_json(read_bytes(path, most=_MOST_SIGNATURE), path, "sign the run again")
    except MissingFileError:
        raise MissingFileError(f"{folder} is not signed: wherefrom sign {folder} --key {key}") from None
    match document:
        case {"format": 1, "method": str(method), "signature": str(value)}:
            is_right = _is_right(method, value, secret, manifest, key)
        case _:
            raise FileError(f"{path} is not a signature of wherefrom: sign the run again")
    if not is_right:
        raise FileError(
            f"{folder} is not what was signed with {key}: it was changed since, or signed with another key; do not "
            "trust it until you know who changed it"
        )


def _is_right(method: str, value: str, secret: bytes, manifest: bytes, key: str | Path) -> bool:
    is_pem = secret.startswith(_PEM)
    if method == "HMAC-SHA256" and not is_pem:
        return hmac.compare_digest(value.encode(), _hmac(secret, manifest).encode())
    if method == "Ed25519" and is_pem:
        from cryptography.exceptions import InvalidSignature

        try:
            _public(secret, key).verify(bytes.fromhex(value), manifest)
        except (InvalidSignature, ValueError):
            return False
        return True
    return False


def _hmac(secret: bytes, manifest: bytes) -> str:
    return hmac.new(secret, manifest, hashlib.sha256).hexdigest()


def _read_key(key: str | Path) -> bytes:
    secret = bytes(read_bytes(key, most=_MOST_KEY, follows_links=True))
    if len(secret) < _LEAST_KEY:
        raise FileError(
            f"{key} has {len(secret)} bytes, too few for a key: make one, as head -c 32 /dev/urandom > {key}"
        )
    return secret


def _private(pem: bytes, key: str | Path) -> Any:
    """Return the private key of a PEM file."""
    asymmetric, serialization = _cryptography()
    try:
        private = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise FileError(f"{key} is no private key without a password: {error}") from error
    if not isinstance(private, asymmetric.Ed25519PrivateKey):
        raise FileError(f"{key} is not a key of Ed25519: make one, as openssl genpkey -algorithm ed25519 -out {key}")
    return private


def _public(pem: bytes, key: str | Path) -> Any:
    """Return the public key of a PEM file, or the one of the private key in it."""
    asymmetric, serialization = _cryptography()
    if b"PRIVATE KEY" in pem[:64]:
        return _private(pem, key).public_key()
    try:
        public = serialization.load_pem_public_key(pem)
    except ValueError as error:
        raise FileError(f"{key} is no public key: {error}") from error
    if not isinstance(public, asymmetric.Ed25519PublicKey):
        raise FileError(f"{key} is not a key of Ed25519")
    return public


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ImportError("keys in PEM form need cryptography: pip install 'wherefrom[sign]'") from None
    return ed25519, serialization
