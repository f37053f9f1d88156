"""Signatures: whoever changes a run, and writes the digests anew, is caught by those who have the key."""

import json

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

import wherefrom as wf
from conftest import training
from rewritten import rewrite
from wherefrom.files import folders
from wherefrom.files.errors import FileError


def hmac_keys(folder, name="key"):
    (folder / name).write_bytes(name.encode() * 16)
    return folder / name, folder / name


def ed25519_keys(folder, name="key"):
    key = Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.fixture(params=[hmac_keys, ed25519_keys], ids=["HMAC", "Ed25519"])
def make_keys(request):
    return request.param


@pytest.fixture
def run(tmp_path):
    with folders.writing(tmp_path / "run") as run:
        run.put_json("about.json", {"seed": 0})
        run.put_tensors("part.safetensors", {"a": torch.zeros(2)})
        run.commit()
    return tmp_path / "run"


def test_a_signed_run_is_verified_and_a_changed_one_is_not(run, make_keys, tmp_path):
    private, public = make_keys(tmp_path)
    with pytest.raises(FileError, match="is not signed: wherefrom sign"):
        folders.verify(run, public)
    folders.sign(run, private)
    folders.verify(run, public)
    folders.verify(run, private)
    signature = (run / "signature.json").read_text()
    rewrite(run, "about.json", lambda document: document | {"seed": 1})
    assert folders.check(run).is_whole  # digests are written anew
    with pytest.raises(FileError, match="is not signed"):
        folders.verify(run, public)
    (run / "signature.json").write_text(signature)
    with pytest.raises(FileError, match=r"is not what was signed with .*key"):
        folders.verify(run, public)


def test_another_key_signs_another_run(run, make_keys, tmp_path):
    private, _ = make_keys(tmp_path)
    _, other = make_keys(tmp_path, "other")
    folders.sign(run, private)
    with pytest.raises(FileError, match="signed with another key"):
        folders.verify(run, other)


def test_a_method_cannot_be_exchanged(run, tmp_path):
    """The public key is no secret: an HMAC with it must not pass."""
    private, public = ed25519_keys(tmp_path)
    folders.sign(run, private)
    import hashlib
    import hmac

    value = hmac.new(public.read_bytes(), (run / "manifest.json").read_bytes(), hashlib.sha256).hexdigest()
    (run / "signature.json").write_text(json.dumps({"format": 1, "method": "HMAC-SHA256", "signature": value}))
    with pytest.raises(FileError, match="is not what was signed"):
        folders.verify(run, public)


def test_damage_is_told_also_behind_a_signature(run, make_keys, tmp_path):
    private, public = make_keys(tmp_path)
    folders.sign(run, private)
    path = folders.Run.open(run).path("part.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(FileError, match=r"is not what was signed: .*part"):
        folders.verify(run, public)
    with pytest.raises(FileError, match=r"was not signed: .*part"):
        folders.sign(run, private)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": 1, "method": "none", "signature": ""}', "\x00"])
def test_signatures_that_are_none(run, content, make_keys, tmp_path):
    private, public = make_keys(tmp_path)
    folders.sign(run, private)
    (run / "signature.json").write_text(content)
    with pytest.raises(FileError, match="sign"):
        folders.verify(run, public)


def test_keys_that_are_none(run, tmp_path):
    (tmp_path / "short").write_bytes(b"secret")
    (tmp_path / "broken.pem").write_bytes(b"-----BEGIN PRIVATE KEY-----\nno\n-----END PRIVATE KEY-----\n")
    _, public = ed25519_keys(tmp_path)
    for key, words in (
        (tmp_path / "short", "too few for a key"),
        (tmp_path / "nowhere", "there is no file"),
        (tmp_path / "broken.pem", "no private key"),
        (public, "no private key"),
    ):
        with pytest.raises(FileError, match=words):
            folders.sign(run, key)
    assert not (run / "signature.json").exists()


def test_a_run_is_loaded_only_if_it_is_signed(problem, tmp_path):
    key, _ = hmac_keys(tmp_path)
    wf.marginalise(training(wf.MLP([4])), problem, []).save(tmp_path / "run")
    with pytest.raises(wf.FileError, match="is not signed"):
        wf.load(tmp_path / "run", key=key)
    folders.sign(tmp_path / "run", key)
    assert len(wf.load(tmp_path / "run", key=key)) == 1
    rewrite(tmp_path / "run", "posterior.json", lambda document: document)
    with pytest.raises(wf.FileError, match="is not signed"):
        wf.load(tmp_path / "run", key=key)
    assert len(wf.load(tmp_path / "run")) == 1
