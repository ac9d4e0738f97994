"""What every model of a resource shares: frozen, closed, camelCase outside and snake_case inside."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from reconciler.resources.quantities import parse_duration, parse_size

T = TypeVar("T")

Many = Annotated[tuple[T, ...], Field(strict=False)]
"""A list in YAML, a tuple here."""

DurationMs = Annotated[int, BeforeValidator(parse_duration)]
"""Milliseconds; -1 is infinite."""

SizeBytes = Annotated[int, BeforeValidator(parse_size)]
"""Bytes; -1 is unlimited."""

Count = Annotated[int, Field(strict=True, ge=1)]
Flag = Annotated[bool, Field(strict=True)]


class Model(BaseModel):
    """A frozen value; unknown fields are refused. Python names inside, camelCase in YAML and JSON."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    def to_json(self) -> dict[str, Any]:
        """Return the canonical JSON form: aliases, no absent values, tuples as lists."""
        return self.model_dump(mode="json", exclude_none=True)
