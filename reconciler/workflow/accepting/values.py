"""Values that clusters hold as people write them in a manifest, in the words their author used before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from reconciler.planning.canonical import plain
from reconciler.resources.configs import canonical_value, show_value
from reconciler.resources.quantities import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.actions import Value

_SIZES: Final = frozenset({"quotas.bytes"})
_DURATIONS: Final = frozenset({"retryTimeout", "metadataInterval", "consumerOffsetSync.interval"})


def written_config(key: str, stored: str, like: Any = None) -> Any:
    """Return a stored config as it is written beside what stood there: `604800000` → `7d`, a number, a list, a text."""
    for form in _forms(key, stored, like):
        try:
            if canonical_value(key, form) == stored:
                return form
        except ValueError:
            continue
    return stored


def written_property(stored: str, like: Any = None) -> Any:
    """Return a property of a cluster as it is written; its values are kept as texts."""
    is_number = isinstance(like, int) and not isinstance(like, bool)
    if is_number and _number(stored) is not None:
        return _number(stored)
    return stored == "true" if isinstance(like, bool) and stored in {"true", "false"} else stored


def written_field(path: str, value: Value, like: Any = None) -> Any:
    """Return any other field as it is written; a number that its author wrote as a number stays one."""
    if isinstance(value, int) and not isinstance(value, bool) and not isinstance(like, int):
        if path in _SIZES:
            return format_size(value)
        if path in _DURATIONS:
            return format_duration(value)
    return plain(value)


def written_configs(configs: Mapping[str, str]) -> dict[str, Any]:
    """Return all configs of something new."""
    return {key: written_config(key, configs[key]) for key in sorted(configs)}


def _forms(key: str, stored: str, like: Any) -> Iterator[Any]:
    number = _number(stored)
    if isinstance(like, int) and not isinstance(like, bool) and number is not None:
        yield number
    if isinstance(like, list):
        yield stored.split(",")
    if isinstance(like, str) and like == stored:
        yield stored
    shown = show_value(key, stored)
    if shown != stored:
        yield shown
    if number is not None:
        yield number
    if stored in {"true", "false"}:
        yield stored == "true"


def _number(stored: str) -> int | None:
    return int(stored) if stored.removeprefix("-").isdecimal() and str(int(stored)) == stored else None
