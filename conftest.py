"""What is collected where numba is not installed: all but the doctests of the modules that need it."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("numba") else ["src/wherefrom/training/native/*"]
