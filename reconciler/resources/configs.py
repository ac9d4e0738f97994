"""The typed catalog of topic configs: Kafka's names, their types, defaults and canonical form.

Values are kept and compared as the string the platform stores; units are only how people write and read them.
Platforms add their own keys as data (`Capabilities.configs`). Source: Apache Kafka documentation, topic configs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BeforeValidator

from reconciler.resources.quantities import format_duration, format_size, parse_duration, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ConfigType = Literal["duration", "size", "integer", "double", "boolean", "list", "enum", "string"]

DEFAULT: Final = "default"
"""The value that resets a key to what it inherits, also where somebody else set it."""


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


_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1

_KEYS: Final = (
    ConfigKey("cleanup.policy", "list", "delete", ("compact", "delete"), description="What happens to old records."),
    ConfigKey(
        "compression.type",
        "enum",
        "producer",
        ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        description="How the log is compressed.",
    ),
    ConfigKey("compression.gzip.level", "integer", "-1", minimum=-1, maximum=9),
    ConfigKey("compression.lz4.level", "integer", "9", minimum=1, maximum=17),
    ConfigKey("compression.zstd.level", "integer", "3", minimum=-131072, maximum=22),
    ConfigKey(
        "delete.retention.ms",
        "duration",
        "86400000",
        minimum=0,
        description="How long tombstones of compacted topics are kept.",
    ),
    ConfigKey("file.delete.delay.ms", "duration", "60000", minimum=0),
    ConfigKey("flush.messages", "integer", str(_LONG_MAX), minimum=1),
    ConfigKey("flush.ms", "duration", str(_LONG_MAX), minimum=0),
    ConfigKey("follower.replication.throttled.replicas", "list", ""),
    ConfigKey("index.interval.bytes", "size", "4096", minimum=0),
    ConfigKey("leader.replication.throttled.replicas", "list", ""),
    ConfigKey(
        "local.retention.bytes",
        "size",
        "-2",
        minimum=-2,
        description="Bytes per partition kept on local disk; -2 follows retention.bytes.",
    ),
    ConfigKey(
        "local.retention.ms",
        "duration",
        "-2",
        minimum=-2,
        description="How long records stay on local disk; -2 follows retention.ms.",
    ),
    ConfigKey(
        "max.compaction.lag.ms",
        "duration",
        str(_LONG_MAX),
        minimum=1,
        description="Longest time a record may stay uncompacted.",
    ),
    ConfigKey(
        "max.message.bytes", "size", "1048588", minimum=0, maximum=_INT_MAX, description="Largest batch accepted."
    ),
    ConfigKey("message.timestamp.after.max.ms", "duration", "3600000", minimum=0),
    ConfigKey("message.timestamp.before.max.ms", "duration", str(_LONG_MAX), minimum=0),
    ConfigKey("message.timestamp.difference.max.ms", "duration", str(_LONG_MAX), minimum=0),
    ConfigKey(
        "message.timestamp.type",
        "enum",
        "CreateTime",
        ("CreateTime", "LogAppendTime"),
        description="Whose clock a record's timestamp comes from.",
    ),
    ConfigKey("min.cleanable.dirty.ratio", "double", "0.5", minimum=0, maximum=1),
    ConfigKey("min.compaction.lag.ms", "duration", "0", minimum=0),
    ConfigKey(
        "min.insync.replicas",
        "integer",
        "1",
        minimum=1,
        description="Replicas that must have a record before acks=all.",
    ),
    ConfigKey("preallocate", "boolean", "false"),
    ConfigKey("remote.copy.disable", "boolean", "false", description="KIP-950: stop copying to the remote tier."),
    ConfigKey(
        "remote.log.delete.on.disable",
        "boolean",
        "false",
        description="KIP-950: delete remote data when tiering is switched off.",
    ),
    ConfigKey("remote.storage.enable", "boolean", "false", description="KIP-405: tiered storage for this topic."),
    ConfigKey(
        "retention.bytes", "size", "-1", minimum=-1, description="Bytes per partition kept in total; -1 is unlimited."
    ),
    ConfigKey(
        "retention.ms", "duration", "604800000", minimum=-1, description="How long records are kept; -1 is for ever."
    ),
    ConfigKey("segment.bytes", "size", "1073741824", minimum=14, maximum=_INT_MAX),
    ConfigKey("segment.index.bytes", "size", "10485760", minimum=4),
    ConfigKey("segment.jitter.ms", "duration", "0", minimum=0),
    ConfigKey("segment.ms", "duration", "604800000", minimum=1),
    ConfigKey("unclean.leader.election.enable", "boolean", "false"),
)

KAFKA_CONFIGS: Final[Mapping[str, ConfigKey]] = MappingProxyType({key.name: key for key in _KEYS})


def canonical_value(key: str, value: object, catalog: Mapping[str, ConfigKey] = KAFKA_CONFIGS) -> str:
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
            return str(_ranged(known, parse_duration(value)))
        case "size":
            return str(_ranged(known, parse_size(value)))
        case "integer":
            return str(_ranged(known, _integer(value)))
        case "double":
            return _double(known, value)
        case "boolean":
            return _choice(_plain(value), ("true", "false"))
        case "enum":
            return _choice(_plain(value), known.values)
        case "list":
            return _joined(known, value)
        case "string":
            return _plain(value)


def show_value(key: str, value: str | None, catalog: Mapping[str, ConfigKey] = KAFKA_CONFIGS) -> str:
    """Return a stored value as a person reads it: `604800000` of retention.ms → `7d`."""
    if value is None:
        return "unset"
    known = catalog.get(key)
    if known is not None and known.type in {"duration", "size"}:
        try:
            number = int(value)
        except ValueError:
            return value
        if number < _LOWEST_WITH_UNIT or number >= _LONG_MAX:
            return value
        return format_duration(number) if known.type == "duration" else format_size(number)
    return value or "''"


_LOWEST_WITH_UNIT: Final = -1
"""Below it lie markers such as -2 (follow the total), which have no unit."""


def canonical_configs(configs: object) -> object:
    """Canonicalise every value of a mapping; anything else is left for the model to refuse.

    Raises:
        ValueError: Names each key whose value is wrong.
    """
    if not isinstance(configs, dict):
        return configs
    done: dict[object, str] = {}
    wrong: list[str] = []
    for key in sorted(configs, key=str):
        try:
            done[key] = canonical_value(str(key), configs[key])
        except ValueError as error:
            wrong.append(f"{key}: {error}")
    if wrong:
        raise ValueError("; ".join(wrong))
    return done


Configs = Annotated[dict[str, str], BeforeValidator(canonical_configs)]


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


def _integer(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
    message = "not a whole number"
    raise ValueError(message)


def _ranged(key: ConfigKey, number: int) -> int:
    _check_range(key, number)
    return number


def _double(key: ConfigKey, value: object) -> str:
    try:
        number = float(_plain(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        message = "not a number"
        raise ValueError(message)
    _check_range(key, number)
    return repr(number)


def _check_range(key: ConfigKey, number: float) -> None:
    low, high = key.minimum, key.maximum
    if (low is not None and number < low) or (high is not None and number > high):
        bounds = f"at least {low:.12g}" if high is None else f"between {low or 0:.12g} and {high:.12g}"
        message = f"{number} is out of range: {bounds}"
        raise ValueError(message)


def _choice(text: str, values: Iterable[str]) -> str:
    allowed = tuple(values)
    for value in allowed:
        if value.lower() == text.lower():
            return value
    message = f"not one of {', '.join(allowed)}"
    raise ValueError(message)


def _joined(key: ConfigKey, value: object) -> str:
    items = value if isinstance(value, list | tuple) else _plain(value).split(",")
    parts = sorted({_plain(item).strip() for item in items} - {""})
    return ",".join(_choice(part, key.values) if key.values else part for part in parts)
