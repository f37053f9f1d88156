"""The error of files: whatever is wrong with one, the message names it and says what to do."""

from __future__ import annotations


class FileError(ValueError):
    """A file cannot be used: it is damaged, incomplete, from another program or version, or in use.

    >>> import tempfile
    >>> import wherefrom as wf
    >>> folder = tempfile.mkdtemp()
    >>> try:
    ...     wf.load(folder)
    ... except wf.FileError as error:
    ...     print(str(error).replace(folder, "run"))
    run holds no run: there is no manifest.json in it
    """


class MissingFileError(FileError, FileNotFoundError):
    """A file is not there. It is also a FileNotFoundError, for handlers of those."""

    def __str__(self) -> str:
        return ValueError.__str__(self)


class BusyError(FileError):
    """Another process is writing there."""


class NoCodeError(FileError, TypeError):
    """Code is needed that no file holds, and was not given. It is also a TypeError: an argument is missing."""
