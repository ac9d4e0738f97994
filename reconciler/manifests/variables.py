"""Variables: `${var.name}` in manifests, and where their values come from. Later wins: files, environment, `--var`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from reconciler.errors import UsageError
from reconciler.manifests.documents import PARSER, parse
from reconciler.manifests.files import label_of, read_bounded
from reconciler.manifests.positions import Spot, spots
from reconciler.manifests.problems import Problem
from reconciler.manifests.scalars import kind_of_value, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
ENVIRONMENT_PREFIX: Final = "RECONCILER_VAR_"


@dataclass(frozen=True, slots=True)
class Variables:
    """What the command line and the environment say: `--var-file`, `RECONCILER_VAR_name`, `--var name=value`."""

    given: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Iterable[str], *, files: Iterable[Path] = (), environ: Mapping[str, str]) -> Variables:
        """Read `name=value` texts; the last of a name wins.

        Raises:
            UsageError: One of them is not `name=value`.
        """
        pairs = dict(_pair(text) for text in given)
        return cls(given=pairs, files=tuple(files), environ=environ)


class Value(NamedTuple):
    """What a variable stands for, and who said so."""

    value: Any
    origin: str


class Values:
    """Every variable there is, and which of them were used."""

    def __init__(self, known: Mapping[str, Value]) -> None:
        self._known = known
        self.used: set[str] = set()

    @property
    def names(self) -> frozenset[str]:
        """The names that are known."""
        return frozenset(self._known)

    def find(self, name: str) -> Value | None:
        """Return what a variable stands for; `None` where nothing defines it."""
        self.used.add(name)
        return self._known.get(name)

    def unused(self, origin: str) -> tuple[str, ...]:
        """Return the names that `origin` gave and nothing used."""
        return tuple(
            sorted(name for name, value in self._known.items() if value.origin == origin and name not in self.used)
        )


FROM_COMMAND_LINE: Final = "--var"


def read_values(
    folder: Path,
    files: Iterable[Path],
    variables: Variables,
    read: Callable[[Path, str], bytes | Problem] = read_bounded,
) -> tuple[Values, list[Problem]]:
    """Return all variables: those of `files` in order, then of the command line's files, environment and texts."""
    known: dict[str, Value] = {}
    problems: list[Problem] = []
    for file in (*files, *variables.files):
        label = label_of(file, folder)
        known.update(_from_file(read(file, label), label, problems))
    for name, text in sorted(variables.environ.items()):
        if name.startswith(ENVIRONMENT_PREFIX):
            known[name.removeprefix(ENVIRONMENT_PREFIX)] = Value(typed(text), name)
    for name, text in variables.given.items():
        known[name] = Value(typed(text), FROM_COMMAND_LINE)
    return Values(known), problems


def typed(text: str) -> Any:
    """Return what a text of the command line means as a YAML scalar; quotes make it text: `--var 'n="12"'`."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    value = resolve(text)
    return text if value is None else value


def _from_file(raw: bytes | Problem, label: str, problems: list[Problem]) -> dict[str, Value]:
    if isinstance(raw, Problem):
        problems.append(raw)
        return {}
    parsed = parse(raw, label)
    problems += parsed.problems
    if len(parsed.documents) > 1:
        hint = "Put all values into one"
        problems.append(Problem(label, parsed.documents[1].line, 1, "", "holds a second document", hint))
    if not parsed.documents:
        return {}
    content, line, *_ = parsed.documents[0]
    if not isinstance(content, dict):
        message = f"wants `name: value` lines, found {kind_of_value(content)}"
        problems.append(Problem(label, line, 1, "", message, "For example `partitions: 12`"))
        return {}
    wrong = {name: complaint for name, value in content.items() if (complaint := _complaint(name, value))}
    places = spots(raw, PARSER)[0] if wrong else {}
    for name, (message, hint) in wrong.items():
        spot = places.get((name,), Spot(line, 1))
        problems.append(Problem(label, spot.line, spot.column, name, message, hint))
    return {name: Value(value, label) for name, value in content.items() if name not in wrong}


def _complaint(name: str, value: Any) -> tuple[str, str] | None:
    """Return what is wrong with a variable, and what to do."""
    if not NAME.fullmatch(name):
        return "is not a name of a variable", "Begin with a letter or _, then letters, digits, _ and -"
    if value is None:
        return "has no value", "Give it one, or leave it out"
    if "${var." in str(value):
        return "uses a variable, and values cannot", "There is no second pass: write the value out"
    return None


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not NAME.fullmatch(name):
        raise UsageError(f"--var {text} is not NAME=VALUE", hint="For example --var partitions=12")
    return name, value
