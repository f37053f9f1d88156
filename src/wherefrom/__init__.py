"""Predictions of neural networks with intervals, and the causes of their doubt.

    import wherefrom as wf

Names are imported when they are first used, so that `import wherefrom` and `wherefrom --help` do not wait for torch.
`__init__.pyi` lists them: first those of `__all__`, which a user types in a first week, and after `__version__` those
that are documented in their rooms.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def _homes() -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Return the module and the name there of every public name, and those of `__all__`."""
    homes, first = {}, []
    for line in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(line, ast.ImportFrom):
            homes |= {name.asname: (line.module, name.name) for name in line.names}
        elif isinstance(line, ast.AnnAssign):  # of __version__
            first = list(homes)
        elif isinstance(line, ast.Assign):  # another name for a module
            homes[line.targets[0].id] = homes[line.value.id]
    return homes, first


_HOMES, __all__ = _homes()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'wherefrom' has no attribute {name!r}")
    home, name_there = _HOMES[name]
    room = vars(importlib.import_module(home))
    return room[name_there] if name_there in room else importlib.import_module(f"{home}.{name_there}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
