"""Topic configs: conversion between declared values and the strings that platforms store."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema
from pydantic.alias_generators import to_camel

from reconciler.resources.base import (
    KEPT,
    LONG_MAX,
    UNLIMITED,
    FieldProblem,
    build_refusal_error,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)
from reconciler.resources.cluster_properties import REFERENCES
from reconciler.resources.kafka_configs import KAFKA_CONFIGS, ConfigKey

SECRET_REFERENCE: Final = re.compile(r"\$\{(env|file):([^}]+)\}")
NO_REFERENCE: Final = "a secret must be a reference, never the secret itself"


_KEYS: Final = (
    ConfigKey(
        "initial.retention.local.target.bytes",
        "size",
        minimum=-1,
        description="Bytes per partition that a moved or recovered replica fetches first.",
    ),
    ConfigKey(
        "initial.retention.local.target.ms",
        "duration",
        minimum=-1,
        description="How far back a moved or recovered replica fetches first.",
    ),
    ConfigKey("remote.delete", "boolean", "true", description="Deleting the topic deletes its remote objects."),
    ConfigKey(
        "remote.log.disable.policy",
        "enum",
        "retain",
        ("retain", "delete"),
        description="KIP-950: what switching tiering off does to remote data.",
    ),
    ConfigKey("remote.read", "boolean", description="Serve reads from the remote tier."),
    ConfigKey("remote.recovery", "boolean", "false", description="Only at creation: from what is in object storage."),
    ConfigKey("remote.write", "boolean", description="Upload closed segments to the remote tier."),
    ConfigKey("retention.local.strict", "boolean", "false", description="Expire local data also when space is free."),
    ConfigKey(
        "retention.local.target.bytes", "size", minimum=-1, description="Bytes per partition kept on local disk."
    ),
    ConfigKey(
        "retention.local.target.ms",
        "duration",
        "86400000",
        minimum=-1,
        description="How long uploaded records stay on local disk.",
    ),
)

TIERING_CONFIGS: Final[Mapping[str, ConfigKey]] = MappingProxyType({key.name: key for key in _KEYS})
"""Tiered storage configs of an embedded cluster that Kafka lacks."""

EMBEDDED_CONFIGS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    dict(sorted({**KAFKA_CONFIGS, **TIERING_CONFIGS}.items()))
)

CATALOGS: Final[Mapping[str, Mapping[str, ConfigKey]]] = MappingProxyType(
    {"embedded": EMBEDDED_CONFIGS, "kafka": KAFKA_CONFIGS}
)
"""Config keys by provider. Other platforms are checked by plans."""

POLICY_KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "remote_write": ("remote.write", "remote.storage.enable", "remote.log.copy.disable"),
        "remote_read": ("remote.read", "remote.storage.enable"),
        "remote_delete": ("remote.delete",),
        "retention.time": ("retention.ms",),
        "retention.bytes": ("retention.bytes",),
        "local_retention.time": ("retention.local.target.ms", "local.retention.ms"),
        "local_retention.bytes": ("retention.local.target.bytes", "local.retention.bytes"),
        "local_retention.strict": ("retention.local.strict",),
        "initial_local_retention.time": ("initial.retention.local.target.ms",),
        "initial_local_retention.bytes": ("initial.retention.local.target.bytes",),
        "on_disable": ("remote.log.disable.policy", "remote.log.delete.on.disable"),
        "segment_bytes": ("segment.bytes",),
    }
)
"""Equivalent configs by field of a TieringPolicy's spec. The embedded cluster's config is first."""


def policy_path(config: str) -> tuple[str, ...] | None:
    """Return the path of the TieringPolicy field for a config, if any."""
    for field, words in POLICY_KEYS.items():
        if config in words:
            return ("spec", *map(to_camel, field.split(".")))
    return None


STORAGE_MODE: Final = "redpanda.storage.mode"
"""Config that decides where a topic's records are stored; `unset` leaves it to `remote.write` and `remote.read`."""
DEFAULT: Final = "default"
"""Value that resets a key to its inherited value, even if policies or defaults set it."""
BROKERS: Final = "brokers"
"""Origin of broker defaults."""


def canonicalize_value(key: str, value: object, catalog: Mapping[str, ConfigKey] = EMBEDDED_CONFIGS) -> str:
    """Return the string that a platform stores for a declared value.

    Values of unknown keys do not change.

    Raises:
        ValueError: The value is invalid for the type of the key.
    """
    if value == DEFAULT:
        return DEFAULT
    known = catalog.get(key)
    if known is None:
        return _to_text(value)
    match known.type:
        case "duration":
            return str(_check_integer(known, _parse_word(known, value, parse_duration)))
        case "size":
            return str(_check_integer(known, _parse_word(known, value, parse_size)))
        case "integer":
            return str(_check_integer(known, _parse_word(known, value, _parse_integer)))
        case "double":
            return _canonicalize_double(known, value)
        case "boolean":
            return _match_choice(_to_single_text(value), ("true", "false"))
        case "enum":
            return _match_choice(_to_single_text(value), known.values)
        case "list":
            return _canonicalize_list(known, value)
        case "string":
            return _to_single_text(value)
        case "reference":
            return _check_reference(_to_single_text(value))


def fit_value(key: ConfigKey, value: str) -> str | None:
    """Return a config's value of another platform as a platform with this key takes it.

    A number above the maximum becomes the maximum. `None` stands for a number below the minimum, such as an unlimited
    -1 where brokers know no such value.
    """
    if key.type not in {"duration", "size", "integer"} or value in key.values:
        return value
    number = int(value)
    if key.minimum is not None and number < key.minimum:
        return None
    return value if key.maximum is None else str(min(number, int(key.maximum)))


def explain_refused_value(value: str, error: ValueError) -> str:
    """Explain why `canonicalize_value` rejected a value."""
    reason = str(error)
    return f"{value!r} is {reason}" if reason.startswith("not ") else reason


def format_value(key: str, value: str | None, catalog: Mapping[str, ConfigKey] = EMBEDDED_CONFIGS) -> str:
    """Return a stored value in readable form: `604800000` of retention.ms → `7d`."""
    if value is None:
        return "unset"
    known = catalog.get(key)
    if known is not None and known.type in {"duration", "size", "integer"}:
        try:
            number = int(value)
        except ValueError:
            return value
        if number == LONG_MAX and _is_endless(known):
            return "infinite"
        if number == _TOTAL and known.minimum == _TOTAL:
            return _TOTAL_WORD
        is_derived = number == UNLIMITED and key.endswith(_DERIVED_SUFFIXES)
        if known.type == "integer" or is_derived or number < _LOWEST_WITH_UNIT or number >= LONG_MAX:
            return value
        return format_duration(number) if known.type == "duration" else format_size(number)
    return value or "''"


_LOWEST_WITH_UNIT: Final = -1
_DERIVED_SUFFIXES: Final = ("remote.copy.lag.ms", "remote.copy.lag.bytes")
"""Suffixes of keys for which -1 means that brokers derive the value from local retention."""
_TOTAL: Final = -2
_TOTAL_WORD: Final = "total"
"""Word for local limits that equal the total retention."""


def _is_endless(key: ConfigKey) -> bool:
    """Return whether the largest number means infinite, because -1 is illegal."""
    return key.maximum is None and key.minimum is not None and key.minimum >= 0


def _parse_word(key: ConfigKey, value: object, parse: Callable[[object], int]) -> int:
    word = value.strip().lower() if isinstance(value, str) else None
    if word in {"infinite", "unlimited"} and _is_endless(key):
        return LONG_MAX
    if word in {"infinite", "unlimited"} and key.name.endswith(_DERIVED_SUFFIXES):
        message = "not possible here: it is at most what stays local, and -1 derives it from that"
        raise ValueError(message)
    if word == _TOTAL_WORD and key.minimum == _TOTAL:
        return _TOTAL
    return parse(value)


def canonicalize_configs(configs: object) -> object:
    """Canonicalize every value of a mapping.

    Raises:
        PydanticCustomError: Values are invalid; the error lists their keys and reasons.
    """
    return _convert_values(configs, _canonicalize)


def _canonicalize(key: str, value: object) -> str:
    if type(value) in _HASHABLE:
        return _canonicalize_cached(key, value)
    return canonicalize_value(key, value)


_HASHABLE: Final = frozenset({str, int, bool, float})


@lru_cache(maxsize=8192, typed=True)
def _canonicalize_cached(key: str, value: str | float) -> str:
    """Cached, because thousands of topics share a few values."""
    return canonicalize_value(key, value)


def convert_values_to_text(values: object) -> object:
    """Convert every value of a mapping to text, for keys without a catalog."""
    return _convert_values(values, lambda _key, value: _to_text(value))


def _convert_values(values: object, convert: Callable[[str, object], str]) -> object:
    if type(values) is not dict:
        return values
    wrong: list[FieldProblem] = []
    done: dict[object, str] = {}
    for key, value in values.items():
        try:
            done[key] = convert(key, value)
        except ValueError as error:
            wrong.append(FieldProblem(str(error), hint="", at=(str(key),)))
    if wrong:
        raise build_refusal_error(*wrong)
    return done


_VALUE: Final = {"type": ["string", "number", "boolean", "array"], "items": {"type": ["string", "number"]}}


def _describe_keys() -> dict[str, object]:
    return {name: {**_VALUE, "description": key.description} for name, key in sorted(EMBEDDED_CONFIGS.items())}


def _canonicalize_declared(configs: object, info: ValidationInfo) -> object:
    return configs if info.context == KEPT else canonicalize_configs(configs)


Configs = Annotated[
    dict[str, str],
    BeforeValidator(_canonicalize_declared),
    WithJsonSchema(
        {"type": "object", "properties": _describe_keys(), "additionalProperties": _VALUE}, mode="validation"
    ),
]
"""Canonical value by config key."""

_TEXT: Final = {"type": ["string", "number", "boolean"]}
_REFERENCE_PATTERN: Final = f"^{SECRET_REFERENCE.pattern}$|^{DEFAULT}$"

Properties = Annotated[
    dict[str, str],
    BeforeValidator(convert_values_to_text),
    WithJsonSchema({"type": "object", "additionalProperties": _TEXT}),
]
"""Text by key, for keys that are not topic configs."""

ClusterProperties = Annotated[
    dict[str, str],
    BeforeValidator(convert_values_to_text),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                name: {"type": "string", "secret": True, "pattern": _REFERENCE_PATTERN} for name in sorted(REFERENCES)
            },
            "additionalProperties": _TEXT,
        }
    ),
]
"""Properties of a cluster. Secrets must be references."""


def _to_text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(value)
        case float():
            return repr(value)
        case list() | tuple():
            return ",".join(sorted(_to_text(item) for item in value))
        case _:
            message = "not a text, number, boolean or list"
            raise ValueError(message)


def _to_single_text(value: object) -> str:
    if isinstance(value, list | tuple):
        message = "wants one value, found a list"
        raise ValueError(message)  # noqa: TRY004 - as every refusal of a value
    return _to_text(value)


# Python's int() and float() also accept underscores, other scripts' digits and `infinity`.
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _parse_integer(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    message = "not a whole number"
    raise ValueError(message)


def _check_integer(key: ConfigKey, number: int) -> int:
    if str(number) not in key.values:
        _check_range(key, number)
    return number


def _canonicalize_double(key: ConfigKey, value: object) -> str:
    text = _to_single_text(value).strip()
    number = float(text) if _DECIMAL.fullmatch(text) else math.nan
    if not math.isfinite(number):
        message = "not a number"
        raise ValueError(message)
    _check_range(key, number)
    return repr(number)


def _check_range(key: ConfigKey, number: float) -> None:
    low = -LONG_MAX if key.minimum is None else key.minimum
    high = LONG_MAX if key.maximum is None else key.maximum
    if not low <= number <= high:
        bounds = " or ".join([f"at least {low}" if number < low else f"at most {high}", *key.values])
        message = f"{number} is out of range: {bounds}"
        raise ValueError(message)


def _check_reference(text: str) -> str:
    if not SECRET_REFERENCE.fullmatch(text):
        raise ValueError(f"{NO_REFERENCE}: ${{env:NAME}} or ${{file:/path}}")
    return text


def _match_choice(text: str, values: Iterable[str]) -> str:
    allowed = tuple(values)
    for value in allowed:
        if value.lower() == text.lower():
            return value
    message = f"not one of {', '.join(allowed)}"
    raise ValueError(message)


def _canonicalize_list(key: ConfigKey, value: object) -> str:
    items = value if isinstance(value, list | tuple) else [value]
    parts = {part.strip() for item in items for part in _to_text(item).split(",")} - {""}
    for part in sorted(parts) if key.values else ():
        if part.lower() not in key.values:
            message = f"{part!r} is not one of {', '.join(key.values)}"
            raise ValueError(message)
    return ",".join(sorted({part.lower() for part in parts} if key.values else parts))
