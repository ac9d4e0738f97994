"""What a config key is: its type, the platform's default, the range or values it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ConfigType = Literal["duration", "size", "integer", "double", "boolean", "list", "enum", "string"]


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One config: its type, the platform's default as stored, the range or values it takes."""

    name: str
    type: ConfigType
    default: str | None = None
    values: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    description: str = ""
