"""The public face: its names, that it opens quickly, and that rooms import one way."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import wherefrom as wf

SOURCE = Path(wf.__file__).parent

# Who may import whom: a room sees the rooms before it.
ROOMS = [
    ("files",),
    ("table", "cache"),
    ("laws",),
    ("training",),
    ("variables",),
    ("predictive",),
    ("likelihoods",),
    ("posterior",),
    ("own_loop",),
    ("recipes",),
    ("estimators",),
    ("report",),
    ("tables",),
    ("reproduce",),
    ("cli",),
    ("__main__",),
]
RANK = {room: rank for rank, rooms in enumerate(ROOMS) for room in rooms}


def imports(path: Path) -> set[str]:
    """The rooms that a file imports when it is loaded (not within functions, nor for types alone)."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        modules = []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("wherefrom"):
            modules = [node.module] if node.module != "wherefrom" else [f"wherefrom.{a.name}" for a in node.names]
        found |= {module.split(".")[1] for module in modules if "." in module}
    return found & set(RANK)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_rooms_import_one_way(path):
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room == "__init__":
        return
    for other in imports(path):
        assert other == room or RANK[other] < RANK[room], other


def test_every_public_name_is_there_and_documented():
    for name in wf.__all__:
        assert getattr(wf, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        wf.nothing  # noqa: B018


@pytest.mark.parametrize("code", ["import wherefrom", "import wherefrom.cli"])
def test_opening_does_not_wait_for_torch(code):
    check = f"{code}; import sys; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_the_command_answers():
    done = subprocess.run([sys.executable, "-m", "wherefrom", "--help"], capture_output=True, text=True, check=True)
    assert "demo" in done.stdout
    assert "reproduce" in done.stdout
    version = subprocess.run(
        [sys.executable, "-m", "wherefrom", "--version"], capture_output=True, text=True, check=True
    )
    assert version.stdout.strip() == f"wherefrom {wf.__version__}"
