"""What every model of a resource shares: frozen, closed, camelCase outside and snake_case inside."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from reconciler.resources.quantities import parse_duration, parse_size

T = TypeVar("T")

LONG_MAX: Final = 2**63 - 1
"""The largest number platforms store."""

Many = Annotated[tuple[T, ...], Field(strict=False)]
"""A list in YAML, a tuple here."""

DurationMs = Annotated[
    int,
    BeforeValidator(parse_duration),
    Field(ge=-1, le=LONG_MAX),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": -1},
                {
                    "type": "string",
                    "pattern": r"^\s*(-1|\d+|\d+(\.\d+)?\s*([mM][sS]|[sSmMhHdDwW])|infinite|unlimited)\s*$",
                },
            ]
        },
        mode="validation",
    ),
]
"""Milliseconds; -1 is infinite. Written `7d`, `36h`, `1500ms`, `infinite`."""

SizeBytes = Annotated[
    int,
    BeforeValidator(parse_size),
    Field(ge=-1, le=LONG_MAX),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": -1},
                {
                    "type": "string",
                    "pattern": r"^\s*(-1|\d+|\d+(\.\d+)?\s*([kKmMgGtTpP][iI]?)?[bB]|infinite|unlimited)\s*$",
                },
            ]
        },
        mode="validation",
    ),
]
"""Bytes; -1 is unlimited. Written `10GiB`, `500MB`, `unlimited`."""

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
        defer_build=True,  # a small workspace never needs most of the kinds; building all costs 50 ms a start
    )

    def to_json(self) -> dict[str, Any]:
        """Return the canonical JSON form: aliases, no absent values, tuples as lists."""
        return self.model_dump(mode="json", exclude_none=True)


class Complaint(NamedTuple):
    """What is wrong with one field, and what to do.

    `at` leads from the validated value to the field, as people write it: `("spec", "partitions")`.
    """

    message: str
    hint: str
    at: tuple[str | int, ...] = ()


def refusal(*complaints: Complaint) -> PydanticCustomError:
    """Return the error a validator raises when it can say which fields below it are wrong, or what to do."""
    message = "; ".join(
        f"{'.'.join(map(str, complaint.at))}: {complaint.message}" if complaint.at else complaint.message
        for complaint in complaints
    )
    return PydanticCustomError("refused", "{message}", {"message": message, "complaints": complaints})
