"""Base of every resource model: strict fields, metadata, durations and sizes."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from reconciler.resources.address import (
    LOCATION,
    MAX_NAME,
    PLAIN,
    check_full_name,
    check_location_or_name,
    check_namespace,
    check_plain_name,
    check_topic_location,
    check_topic_name,
)

# The rules of names are in `address`, because shell completion must not import pydantic.


TopicName = Annotated[
    str, AfterValidator(check_topic_name), Field(json_schema_extra={"pattern": f"^[a-zA-Z0-9._-]{{1,{MAX_NAME}}}$"})
]
NamespaceName = Annotated[
    str, AfterValidator(check_namespace), Field(json_schema_extra={"pattern": "^([a-zA-Z0-9.-]+(:[a-zA-Z0-9.-]+)*)?$"})
]
FullName = Annotated[
    str, AfterValidator(check_full_name), Field(json_schema_extra={"pattern": "^([a-zA-Z0-9.-]+:)*[a-zA-Z0-9._-]+$"})
]
PlainName = Annotated[str, AfterValidator(check_plain_name), Field(json_schema_extra={"pattern": f"^{PLAIN.pattern}$"})]
TopicLocation = Annotated[
    str, AfterValidator(check_topic_location), Field(json_schema_extra={"pattern": f"^{LOCATION.pattern}$"})
]
LocationOrName = Annotated[
    str,
    AfterValidator(check_location_or_name),
    Field(json_schema_extra={"pattern": f"^({LOCATION.pattern}|[a-zA-Z0-9._-]{{1,{MAX_NAME}}})$"}),
]


# Quantities, such as `7d` or `10GiB`. Plain numbers are ms and bytes, as in Kafka.
# `infinite`, `unlimited` and `-1` are equal.


UNLIMITED: Final = -1

_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_BYTES: Final = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "PiB": 2**50,
}
# Weeks are only parsed, because 30d is clearer than 4w 2d.
_SHOWN_MS: Final = tuple((unit, _MS[unit]) for unit in ("d", "h", "m", "s", "ms"))
_SHOWN_BYTES: Final = tuple(
    (unit, _BYTES[unit]) for unit in ("PiB", "TiB", "GiB", "MiB", "KiB", "PB", "TB", "GB", "MB", "KB")
)
_QUANTITY: Final = re.compile(r"([0-9]{1,40})(?:\.([0-9]{1,40}))?\s*([A-Za-z]+)")
_INTEGER: Final = re.compile(r"-?[0-9]{1,40}")


def parse_duration(value: object) -> int:
    """Return a duration in milliseconds. Raise `ValueError` with the accepted forms."""
    return _parse(value, _MS, "a duration such as 7d, 36h, 90s, 1500ms or infinite")


def parse_size(value: object) -> int:
    """Return a size in bytes. Raise `ValueError` with the accepted forms."""
    return _parse(value, _BYTES, "a size such as 10GiB, 500MB, 1024 or unlimited")


def format_duration(ms: int) -> str:
    """Return the shortest exact form: 604800000 → `7d`."""
    return "infinite" if ms == UNLIMITED else _format(ms, _SHOWN_MS)


def format_size(count: int) -> str:
    """Return the shortest exact form, in powers of two if possible: 10737418240 → `10GiB`."""
    return "unlimited" if count == UNLIMITED else _format(count, _SHOWN_BYTES)


def _parse(value: object, units: dict[str, int], wanted: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in {"infinite", "unlimited"}:
            return UNLIMITED
        if _INTEGER.fullmatch(text):
            return int(text)
        quantity = _QUANTITY.fullmatch(text)
        if quantity and (unit := _match_unit(quantity[3], units)):
            # Computed with integers, because floats do not represent 0.1d exactly.
            whole, part = quantity[1], quantity[2] or ""
            scaled = int(whole + part) * units[unit]
            divisor = int("1" + "0" * len(part))
            if scaled % divisor == 0:
                return scaled // divisor
    message = f"not {wanted}"
    raise ValueError(message)


def _match_unit(text: str, units: dict[str, int]) -> str | None:
    if text in units:
        return text
    folded = [unit for unit in units if unit.lower() == text.lower()]
    return folded[0] if folded else None


def _format(value: int, units: tuple[tuple[str, int], ...]) -> str:
    for unit, size in units:
        if value and value % size == 0:
            return f"{value // size}{unit}"
    return str(value)


T = TypeVar("T")

LONG_MAX: Final = 2**63 - 1
"""Largest number that platforms store."""

Many = Annotated[tuple[T, ...], Field(strict=False)]
"""A list in YAML, a tuple in Python."""

KEPT: Final = "kept"
"""Validation context for stored values, which include values that manifests may not declare."""

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
"""Milliseconds; -1 means infinite. Written `7d`, `36h`, `1500ms`, `infinite`."""

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
"""Bytes; -1 means unlimited. Written `10GiB`, `500MB`, `unlimited`."""

Count = Annotated[int, Field(strict=True, ge=1)]
Flag = Annotated[bool, Field(strict=True)]


class Model(BaseModel):
    """Frozen value that rejects unknown fields. Names are snake_case in Python, camelCase in YAML and JSON."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        defer_build=True,  # Building every kind would take 50 ms at start.
    )

    def to_json(self) -> dict[str, Any]:
        """Return the canonical JSON form, without absent values."""
        return self.model_dump(mode="json", exclude_none=True)

    def copy_with(self, **values: object) -> Self:
        """Return a copy with other valid values. It takes a third of the time of `model_copy`."""
        copied, put = object.__new__(type(self)), object.__setattr__
        put(copied, "__dict__", self.__dict__ | values)
        put(copied, "__pydantic_fields_set__", self.__pydantic_fields_set__)
        put(copied, "__pydantic_extra__", None)
        put(copied, "__pydantic_private__", None)
        return copied


class FieldProblem(NamedTuple):
    """Problem of one field, with its solution and its path in YAML: `("spec", "partitions")`."""

    message: str
    hint: str
    at: tuple[str | int, ...] = ()


def build_refusal_error(*complaints: FieldProblem) -> PydanticCustomError:
    """Return a validator's error about several fields, or with a hint."""
    message = "; ".join(
        f"{'.'.join(map(str, complaint.at))}: {complaint.message}" if complaint.at else complaint.message
        for complaint in complaints
    )
    return PydanticCustomError("refused", "{message}", {"message": message, "complaints": complaints})


_ABOUT_LABELS: Final = "Free labels, for `-l` selectors and rules."
_A_LABEL: Final = {"team": "checkout"}


class NameOnly(Model):
    """Metadata of a resource outside clusters."""

    name: PlainName = Field(description="Its lifelong name.", examples=["west"])
    labels: dict[str, str] = Field(default_factory=dict, description=_ABOUT_LABELS, examples=[_A_LABEL])


class OnCluster(Model):
    """Metadata of a resource of a cluster, outside any namespace."""

    name: PlainName = Field(description="Its lifelong name on the cluster.", examples=["from-west"])
    cluster: PlainName = Field(description="The Cluster it lives on.", examples=["east"])
    labels: dict[str, str] = Field(default_factory=dict, description=_ABOUT_LABELS, examples=[_A_LABEL])


class OfNamespace(Model):
    """Metadata of a namespace."""

    name: NamespaceName = Field(description="All tiers, joined by ':'.", examples=["shop:eu"])
    cluster: PlainName = Field(description="The Cluster it lives on.", examples=["west"])
    labels: dict[str, str] = Field(default_factory=dict, description=_ABOUT_LABELS, examples=[_A_LABEL])


class InNamespace(Model):
    """Metadata of a resource in a namespace of a cluster."""

    name: TopicName = Field(description="Its name within the namespace.", examples=["orders"])
    namespace: NamespaceName = Field(
        default="", description="The namespace; '' is the default one.", examples=["shop:eu"]
    )
    cluster: PlainName = Field(description="The Cluster it lives on.", examples=["west"])
    labels: dict[str, str] = Field(default_factory=dict, description=_ABOUT_LABELS, examples=[_A_LABEL])
