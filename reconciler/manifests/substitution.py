"""Putting values for `${var.name}`: one pass, no templating.

Alone a variable keeps its type, inside text it is text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from reconciler.manifests.scalars import kind_of_value
from reconciler.manifests.suggestions import did_you_mean, one_of
from reconciler.resources.base import Complaint

if TYPE_CHECKING:
    from reconciler.manifests.positions import Path
    from reconciler.manifests.variables import Values

REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE: Final = re.compile(r"var\.([A-Za-z_][A-Za-z0-9_-]*)")
_SECRET: Final = re.compile(r"(env|file):.+")


class Substitution:
    """One document: its content with every variable's value in place, and what came to light on the way.

    `secrets`: the paths of `${env:…}` and `${file:…}`, which only secret fields may hold.
    `used`: path → the variable used there and who defined it, as people read it: `var.partitions of values.yaml`.
    """

    def __init__(self, values: Values) -> None:
        self.complaints: list[Complaint] = []
        self.secrets: list[Path] = []
        self.used: dict[Path, str] = {}
        self._values = values

    def of(self, content: Any, path: Path = ()) -> Any:
        """Return `content` with every `${var.name}` replaced; what is not known stays, with a complaint."""
        match content:
            case str() if "${" in content:
                return self._text(content, path)
            case dict():
                for key in content:
                    if "${" in key:
                        self._complain((*path, key), "a variable cannot stand in a key", "Write the key out")
                return {key: self.of(value, (*path, key)) for key, value in content.items()}
            case list():
                return [self.of(value, (*path, index)) for index, value in enumerate(content)]
            case _:
                return content

    def _text(self, text: str, path: Path) -> Any:
        alone = REFERENCE.fullmatch(text)
        if alone:
            return self._value(alone[1], path)
        return REFERENCE.sub(lambda found: self._inside(found[1], path), text)

    def _inside(self, reference: str, path: Path) -> str:
        value = self._value(reference, path)
        match value:
            case bool():
                return "true" if value else "false"
            case str() | int() | float():
                return str(value)
            case _:
                self._complain(path, f"{reference} is {kind_of_value(value)} and stands inside a text", "Use it alone")
                return ""

    def _value(self, reference: str, path: Path) -> Any:
        if _SECRET.fullmatch(reference):
            self.secrets.append(path)
            return f"${{{reference}}}"
        variable = _VARIABLE.fullmatch(reference)
        if variable is None:
            message = f"${{{reference}}} is not a reference"
            self._complain(path, message, "References are ${var.name}; in secret fields ${env:NAME} and ${file:/path}")
            return f"${{{reference}}}"
        name = variable[1]
        found = self._values.find(name)
        if found is None:
            define = (
                f"Define it in a values file, or pass --var {name}=VALUE; defined are: {one_of(self._values.names)}"
            )
            hint = did_you_mean(name, self._values.names, otherwise=define)
            self._complain(path, f"the variable {name} is not defined", hint)
            return f"${{{reference}}}"
        earlier = f"{self.used[path]}, " if path in self.used else ""
        self.used[path] = f"{earlier}var.{name} of {found.origin}"
        return found.value

    def _complain(self, path: Path, message: str, hint: str) -> None:
        self.complaints.append(Complaint(message, hint, path))
