"""Where data comes from: a folder that the user names, or an official file that is downloaded once and kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from wherefrom.files import atomic


def named_root(root: str | os.PathLike[str] | None) -> Path | None:
    """The folder that is given, or named by WHEREFROM_DATA, if there is one."""
    found = root or os.environ.get("WHEREFROM_DATA")
    if found and not Path(found).is_dir():
        raise FileNotFoundError(f"the data folder {found} does not exist; --data or WHEREFROM_DATA names it")
    return Path(found) if found else None


@contextmanager
def beside(kept: Path, by_hand: str) -> Iterator[Path]:
    """Yield a folder to download into; what is left in it at the end is kept beside it, after an error nothing."""
    with ExitStack() as stack:
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(atomic.writing_beside(kept))
        except OSError as error:
            raise OSError(
                f"{kept.name} cannot be downloaded into {kept.parent}: {error.strerror}. Let WHEREFROM_CACHE name a "
                f"folder that can be written. {by_hand}"
            ) from error
        yield folder


def fetch(url: str, checksum: str | None, path: Path, by_hand: str, progress: bool | None) -> Path:
    """A file as it is at that address; pooch moves it to the path when it is whole and has the checksum."""
    try:
        import pooch
        import requests
    except ImportError as error:
        raise ImportError(f"downloading {url} needs pooch: pip install 'wherefrom[uci]'. {by_hand}") from error
    from wherefrom.training.progress import progress_bar

    def download(url: str, output: str, _: Any) -> None:
        with requests.get(url, stream=True, timeout=30) as response, Path(output).open("wb") as file:
            response.raise_for_status()
            size = int(response.headers.get("Content-Length", 0))
            with progress_bar(f"downloading {path.name}", size, progress) as report:
                for chunk in response.iter_content(2**16):
                    report(file.write(chunk))

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")  # it would tell of every download, and give checksums to copy
    try:
        pooch.retrieve(url, checksum, fname=path.name, path=path.parent, downloader=download)
    except (OSError, ValueError) as error:
        raise OSError(f"{url} could not be downloaded: {_reason(error)}. {by_hand}") from error
    finally:
        logger.setLevel(level)
    return path


def _reason(error: Exception) -> str:
    """Return what went wrong, without the names of the packages that it went through."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke in the middle"
    if isinstance(error, requests.Timeout):
        return "the server did not answer in time"
    if isinstance(error, requests.ConnectionError):
        return f"there is no connection ({type(error).__name__})"
    if isinstance(error, OSError):
        return str(error)
    return "the file does not have the checksum that was published"
