"""Topic configs: the value that a platform stores, and the value that a person wrote.

Values are kept and compared as the string the platform stores; units are only how people write and read them.
The keys are data: Kafka's in `kafkaconfigs`, the embedded cluster's in `tieringconfigs`, and platforms add their own
(`Capabilities.configs`).
"""

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
    Complaint,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
    refusal,
)
from reconciler.resources.cluster_properties import REFERENCES
from reconciler.resources.kafka_configs import KAFKA_CONFIGS, ConfigKey

SECRET_REFERENCE: Final = re.compile(r"\$\{(env|file):([^}]+)\}")
NO_REFERENCE: Final = "a secret must be a reference, never the secret itself"


# The words of tiering on an embedded cluster, and which field of a TieringPolicy each of them says.


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
"""What an embedded cluster knows beyond Kafka's names."""

EMBEDDED_CONFIGS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    dict(sorted({**KAFKA_CONFIGS, **TIERING_CONFIGS}.items()))
)
"""Every topic config of an embedded cluster, by name."""

CATALOGS: Final[Mapping[str, Mapping[str, ConfigKey]]] = MappingProxyType(
    {"embedded": EMBEDDED_CONFIGS, "kafka": KAFKA_CONFIGS}
)
"""Provider → its config keys. Other platforms have keys of their own, judged at plan."""

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
"""Field of a TieringPolicy's spec → the configs that say the same; the first is the embedded cluster's own word."""


def policy_path(config: str) -> tuple[str, ...] | None:
    """Return the way to the field of a TieringPolicy that stands for a config; `None`: there is none."""
    for field, words in POLICY_KEYS.items():
        if config in words:
            return ("spec", *map(to_camel, field.split(".")))
    return None


DEFAULT: Final = "default"
"""The value that resets a key to what it inherits, also where somebody else set it."""
BROKERS: Final = "brokers"
"""Where a value comes from that nobody set: what the brokers do by themselves, as they tell it."""


def canonical_value(key: str, value: object, catalog: Mapping[str, ConfigKey] = EMBEDDED_CONFIGS) -> str:
    """Return the string a platform stores for what a person wrote.

    A key the catalog does not know keeps its text; whether the platform has such a key is judged at plan.

    Raises:
        ValueError: The value is neither a quantity nor a raw value of the key's type.
    """
    if value == DEFAULT:
        return DEFAULT
    known = catalog.get(key)
    if known is None:
        return _plain(value)
    match known.type:
        case "duration":
            return str(_ranged(known, _word(known, value, parse_duration)))
        case "size":
            return str(_ranged(known, _word(known, value, parse_size)))
        case "integer":
            return str(_ranged(known, _word(known, value, _integer)))
        case "double":
            return _double(known, value)
        case "boolean":
            return _choice(_single(value), ("true", "false"))
        case "enum":
            return _choice(_single(value), known.values)
        case "list":
            return _joined(known, value)
        case "string":
            return _single(value)
        case "reference":
            return _reference(_single(value))


def refused_value(value: str, error: ValueError) -> str:
    """Say of a value why `canonical_value` refused it; a reason that names the value already stands alone."""
    reason = str(error)
    return f"{value!r} is {reason}" if reason.startswith("not ") else reason


def show_value(key: str, value: str | None, catalog: Mapping[str, ConfigKey] = EMBEDDED_CONFIGS) -> str:
    """Return a stored value as a person reads it: `604800000` of retention.ms → `7d`."""
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
        is_derived = number == UNLIMITED and key.endswith(_DERIVED)
        if known.type == "integer" or is_derived or number < _LOWEST_WITH_UNIT or number >= LONG_MAX:
            return value
        return format_duration(number) if known.type == "duration" else format_size(number)
    return value or "''"


_LOWEST_WITH_UNIT: Final = -1
_DERIVED: Final = ("remote.copy.lag.ms", "remote.copy.lag.bytes")
"""Ends of the names of keys to which -1 is no limit that is endless: brokers derive the value from what stays local."""
_TOTAL: Final = -2
_TOTAL_WORD: Final = "total"
"""Of local targets: as much, or as long, as is kept in total."""


def _is_endless(key: ConfigKey) -> bool:
    """Tell whether a key has no end but the largest number there is: -1 means nothing to it."""
    return key.maximum is None and key.minimum is not None and key.minimum >= 0


def _word(key: ConfigKey, value: object, parse: Callable[[object], int]) -> int:
    """Return the number that a word for a marker stands for, or what `parse` makes of anything else."""
    word = value.strip().lower() if isinstance(value, str) else None
    if word in {"infinite", "unlimited"} and _is_endless(key):
        return LONG_MAX
    if word in {"infinite", "unlimited"} and key.name.endswith(_DERIVED):
        message = "not possible here: it is at most what stays local, and -1 derives it from that"
        raise ValueError(message)
    if word == _TOTAL_WORD and key.minimum == _TOTAL:
        return _TOTAL
    return parse(value)


def canonical_configs(configs: object) -> object:
    """Canonicalise every value of a mapping; anything else is left for the model to refuse.

    No two platforms use one name for different things, so one catalog serves all; whether a platform has the key is
    judged where the platform is known.

    Raises:
        PydanticCustomError: Names each key whose value is wrong, and why.
    """
    return _each_value(configs, _canonical)


def _canonical(key: str, value: object) -> str:
    if type(value) in _HASHABLE:
        return _canonical_once(key, value)
    return canonical_value(key, value)


_HASHABLE: Final = frozenset({str, int, bool, float})


@lru_cache(maxsize=8192, typed=True)
def _canonical_once(key: str, value: str | float) -> str:
    """Judge a value of a key once: thousands of topics share a few."""
    return canonical_value(key, value)


def plain_values(values: object) -> object:
    """Turn every value of a mapping into its text; for keys that belong to others: cluster properties, Spark's."""
    return _each_value(values, lambda _key, value: _plain(value))


def _each_value(values: object, convert: Callable[[str, object], str]) -> object:
    if type(values) is not dict:
        return values
    wrong: list[Complaint] = []
    done: dict[object, str] = {}
    for key, value in values.items():
        try:
            done[key] = convert(key, value)
        except ValueError as error:
            wrong.append(Complaint(str(error), hint="", at=(str(key),)))
    if wrong:
        raise refusal(*wrong)
    return done


_VALUE: Final = {"type": ["string", "number", "boolean", "array"], "items": {"type": ["string", "number"]}}


def _config_properties() -> dict[str, object]:
    """Return each known key with its description, for editors to complete."""
    return {name: {**_VALUE, "description": key.description} for name, key in sorted(EMBEDDED_CONFIGS.items())}


def _canonical_unless_kept(configs: object, info: ValidationInfo) -> object:
    """Leave stored values as they are: brokers have some that no file may declare."""
    return configs if info.context == KEPT else canonical_configs(configs)


Configs = Annotated[
    dict[str, str],
    BeforeValidator(_canonical_unless_kept),
    WithJsonSchema(
        {"type": "object", "properties": _config_properties(), "additionalProperties": _VALUE}, mode="validation"
    ),
]
"""Config key → the string the platform stores."""

_TEXT: Final = {"type": ["string", "number", "boolean"]}
_NAMED: Final = f"^{SECRET_REFERENCE.pattern}$|^{DEFAULT}$"

Properties = Annotated[
    dict[str, str],
    BeforeValidator(plain_values),
    WithJsonSchema({"type": "object", "additionalProperties": _TEXT}),
]
"""Key → text, for keys that are not topic configs."""

ClusterProperties = Annotated[
    dict[str, str],
    BeforeValidator(plain_values),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {name: {"type": "string", "secret": True, "pattern": _NAMED} for name in sorted(REFERENCES)},
            "additionalProperties": _TEXT,
        }
    ),
]
"""The same for properties of a cluster: those that name a secret are references."""


def _plain(value: object) -> str:
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
            return ",".join(sorted(_plain(item) for item in value))
        case _:
            message = "not a text, number, boolean or list"
            raise ValueError(message)


def _single(value: object) -> str:
    if isinstance(value, list | tuple):
        message = "wants one value, found a list"
        raise ValueError(message)  # noqa: TRY004 - as every refusal of a value
    return _plain(value)


# Python's own int() and float() also take underscores, other scripts' digits and `infinity`.
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _integer(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    message = "not a whole number"
    raise ValueError(message)


def _ranged(key: ConfigKey, number: int) -> int:
    if str(number) not in key.values:
        _check_range(key, number)
    return number


def _double(key: ConfigKey, value: object) -> str:
    text = _single(value).strip()
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


def _reference(text: str) -> str:
    if not SECRET_REFERENCE.fullmatch(text):
        raise ValueError(f"{NO_REFERENCE}: ${{env:NAME}} or ${{file:/path}}")
    return text


def _choice(text: str, values: Iterable[str]) -> str:
    allowed = tuple(values)
    for value in allowed:
        if value.lower() == text.lower():
            return value
    message = f"not one of {', '.join(allowed)}"
    raise ValueError(message)


def _joined(key: ConfigKey, value: object) -> str:
    items = value if isinstance(value, list | tuple) else [value]
    parts = {part.strip() for item in items for part in _plain(item).split(",")} - {""}
    for part in sorted(parts) if key.values else ():
        if part.lower() not in key.values:
            message = f"{part!r} is not one of {', '.join(key.values)}"
            raise ValueError(message)
    return ",".join(sorted({part.lower() for part in parts} if key.values else parts))
