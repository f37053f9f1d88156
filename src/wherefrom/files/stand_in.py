"""The stand-in for code that a file does not hold: functions, factories and classes of the user's own.

It can be shown, compared and written again. Whatever would need the code raises NotStoredError, which says how to give
the code again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from wherefrom.files.errors import FileError


class NotStoredError(FileError):
    """Code was asked for that a file does not hold."""


@dataclass(frozen=True)
class Code:
    """The rule for code in a field: the sentence of the error, and what a file keeps beside the name.

    sentence: may contain {name}, of the function or class, and {it}, the value as it was written.
    given_by: the argument of `wf.load` that takes the class again, such as "laws"; None if there is none.
    keeps: attributes that the stand-in still has.
    is_needed: True if nothing can be read without it, so that it is not written unless it can be made again.

    >>> Code("{name} is code, which is not stored: give it again").explained("brighter", "<function brighter>")
    'brighter is code, which is not stored: give it again'
    """

    sentence: str
    given_by: str | None = None
    keeps: tuple[str, ...] = ()
    is_needed: bool = False

    def explained(self, name: str, as_written: str) -> str:
        return self.sentence.replace("{name}", name.rpartition(".")[2]).replace("{it}", as_written)


def own_class(argument: str, keeps: tuple[str, ...] = (), is_needed: bool = False) -> Code:
    """Code that is an object of the user's own class, which `wf.load` takes again as that argument."""
    sentence = "{name} is a class of your own, and code is not stored: give it again, as wf.load(folder, ..., "
    return Code(f"{sentence}{argument}=[{{name}}])", argument, keeps, is_needed)


@dataclass(frozen=True, repr=False)
class StandIn:
    """A value whose code is not here.

    >>> missing = StandIn("falling", "<function falling>", "the schedule falling is code, which is not stored")
    >>> missing
    <function falling>
    >>> missing(0.5)
    Traceback (most recent call last):
    wherefrom.files.stand_in.NotStoredError: the schedule falling is code, which is not stored
    """

    name: str
    as_written: str
    why: str = field(compare=False)
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False)  # attributes that are known all the same
    settings: Mapping[str, Any] | None = field(default=None, compare=False)  # to make it again from its class

    def refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotStoredError(self.why)

    __call__ = collector = choices = sample = refuse  # a function, a law, a variable, a distribution
    every = fewest = property(refuse)

    def __getattr__(self, name: str) -> Any:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"the stand-in for {self.__dict__.get('as_written')} has no attribute {name!r}")

    def __repr__(self) -> str:
        return self.as_written
