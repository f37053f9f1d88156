"""The plan of the house: rooms import one way, imports within functions counted, and no modules import each other."""

import ast
import graphlib
from pathlib import Path

import pytest

import wherefrom as wf

SOURCE = Path(wf.__file__).parent
MODULES = {path: path.relative_to(SOURCE).as_posix() for path in sorted(SOURCE.rglob("*.py"))}

# A room sees the rooms in the lines above it. CONTRIBUTING.md says what each is for.
ORDER = """
files showing plots
table cache devices
laws
training
variables
predictive
likelihoods
posterior
recipes
own_loop report
tables reproduce
estimators displays loading serving ahead
cli
__main__
"""
RANK = {room: rank for rank, line in enumerate(ORDER.split("\n")) for room in line.split()}
LEAVES = ("report", "reproduce")  # write `import wherefrom as wf`, as a user does
# Methods that only open another room, or a file that makes posteriors, and so import it when they are called.
DOORS = {f"wherefrom.posterior.posterior -> wherefrom.{room}" for room in ("own_loop", "report", "posterior.store")}


def named(path: Path) -> str:
    """The module's name."""
    return f"wherefrom/{MODULES[path]}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")


NAMES = {named(path) for path in MODULES}


def imported(path: Path) -> set[str]:
    """The modules of ours that a file imports, wherever in it, but for types alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    left_out = {id(node) for block in for_types for node in ast.walk(block)}
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and id(node) not in left_out:
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and id(node) not in left_out:
            assert node.level == 0, f"{path}: write the whole name of the module"
            names += [f"{node.module}.{alias.name}" for alias in node.names if alias.name != "__version__"]
    modules = {name if name in NAMES else name.rpartition(".")[0] for name in names}
    return {name for name in modules & NAMES if not any(f"{named(path)} -> {name}".startswith(door) for door in DOORS)}


@pytest.mark.parametrize("path", MODULES, ids=MODULES.get)
def test_rooms_import_one_way(path):
    room = MODULES[path].split("/")[0].removesuffix(".py")
    for name in imported(path):
        if name == "wherefrom":
            assert room in LEAVES
            continue
        other = name.split(".")[1]
        assert other == room or RANK[other] < RANK[room], f"{room} imports {name}"


def test_no_modules_import_each_other():
    graph = {named(path): imported(path) - {"wherefrom", named(path)} for path in MODULES}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules
