"""How JulieOps makes names, as its properties file says: a separator, and formats of names between curly brackets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIELD: Final = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_.]*)\s*\}\}")
_FORMAT: Final = "topology.topic.prefix.format"
_PROJECT_FORMAT: Final = "topology.project.prefix.format"
_SEPARATOR: Final = "topology.topic.prefix.separator"
_DEFAULT: Final = "default"
SERVERS: Final = "bootstrap.servers"


@dataclass(frozen=True, slots=True)
class Names:
    """The separator and formats; without formats all parts follow each other as they are written."""

    separator: str = "."
    topic_format: str | None = None
    project_format: str | None = None

    def topic(self, parts: Mapping[str, str]) -> str:
        """Return the name of a topic; what it is made of is empty where the topology does not say it."""
        if self.topic_format is not None:
            return _filled(self.topic_format, parts)
        rest = [parts[key] for key in ("topic", "dataType") if parts.get(key)]
        return self.separator.join([self.project(parts), *rest])

    def project(self, parts: Mapping[str, str]) -> str:
        """Return what the names of a project's topics begin with."""
        if self.project_format is not None:
            return _filled(self.project_format, parts)
        above = [parts[key] for key in parts if key not in {"topic", "dataType", "project"}]
        return self.separator.join([*above, parts["project"]])


def names_of(properties: Mapping[str, str]) -> Names:
    """Return how names are made, from the properties of the other tool.

    Raises:
        ValueError: A format is more than names between curly brackets.
    """
    topic, project = properties.get(_FORMAT, _DEFAULT), properties.get(_PROJECT_FORMAT, _DEFAULT)
    for said in (topic, project):
        if "{" in _FIELD.sub("", said):
            message = f"{said!r} is more than names between curly brackets"
            raise ValueError(message)
    return Names(
        separator=properties.get(_SEPARATOR, "."),
        topic_format=None if topic == _DEFAULT else topic,
        project_format=None if project == _DEFAULT else project,
    )


def properties_in(text: str) -> dict[str, str]:
    """Return the keys of a properties file that are about names and brokers; no other value is looked at."""
    wanted = {_FORMAT, _PROJECT_FORMAT, _SEPARATOR, SERVERS}
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, sign, value = line.partition("=")
        if sign and key.strip() in wanted:
            found[key.strip()] = value.strip().strip('"')
    return found


def _filled(said: str, parts: Mapping[str, str]) -> str:
    return _FIELD.sub(lambda field: parts.get(field[1], ""), said)
