"""Values of fields as people read them, exactly: what is printed here reads back as the same value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from reconciler.cli.render.leaves import is_nested, json_text, leaves
from reconciler.resources.aclpaths import ACLS
from reconciler.resources.clusterproperties import EMBEDDED_PROPERTIES
from reconciler.resources.configs import show_value
from reconciler.resources.quantities import format_size

if TYPE_CHECKING:
    from reconciler.planning.actions import Change, Value

_CONFIGS: Final = "configs."
_PROPERTIES: Final = "properties."
_QUOTA_OF_BYTES: Final = "quotas.bytes"
_FEW: Final = 3
_REORDERED: Final = "in another order"


def field_name(path: str) -> str:
    """Return a path as people say it: configs go by their own name, access rules by who and where."""
    return f"acl {path.removeprefix(ACLS)}" if path.startswith(ACLS) else path.removeprefix(_CONFIGS)


def value_text(path: str, value: Value | list[object]) -> str:
    """Return one value of a field, as an action or as JSON holds it, with its unit where the field has one."""
    if path.startswith(_CONFIGS) and (value is None or isinstance(value, str)):
        return show_value(field_name(path), value)
    if path.startswith(_PROPERTIES) and isinstance(value, str):
        return show_value(path.removeprefix(_PROPERTIES), value, EMBEDDED_PROPERTIES)
    if path.startswith(ACLS) and isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if path == _QUOTA_OF_BYTES and isinstance(value, int):
        return format_size(value)
    match value:
        case None:
            return "unset"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return value or "''"
        case tuple() | list() | Mapping():
            return json_text(value)


def change_texts(change: Change) -> list[str]:
    """Return a field that moves for people, with a text for each value that moves inside it."""
    if not is_nested(change.before, change.after):
        return [change_text(change)]
    name = field_name(change.path)
    return [each.text for each in leaves(name, change.before, change.after)] or [f"{name} {_REORDERED}"]


def change_text(change: Change) -> str:
    """Return a field that moves in one text: `retention.ms 7d → 3d`, `+acl allow User:checkout: read`."""
    if change.path.startswith(ACLS):
        return _rule_text(change)
    if isinstance(change.before, tuple) and isinstance(change.after, tuple):
        return f"{field_name(change.path)} {_members(change.before, change.after)}"
    before, after = value_text(change.path, change.before), value_text(change.path, change.after)
    return f"{field_name(change.path)} {before} → {after}"


def _rule_text(change: Change) -> str:
    sides = [value_text(change.path, side) for side in (change.before, change.after) if side is not None]
    sign = "+" if change.before is None else "-" if change.after is None else ""
    return f"{sign}{field_name(change.path)}: {' → '.join(sides)}"


def configs_text(configs: Mapping[str, str]) -> str:
    """Return configs where they are few, else their number."""
    if len(configs) > _FEW:
        return f"{len(configs)} configs"
    return ", ".join(f"{key} {show_value(key, configs[key])}" for key in sorted(configs))


def _members(before: tuple[object, ...], after: tuple[object, ...]) -> str:
    """Return what left a list and what came, in place of the whole list twice."""
    old, new = ([json_text(item) for item in side] for side in (before, after))
    moved = [f"-{item}" for item in old if item not in new] + [f"+{item}" for item in new if item not in old]
    return " ".join(moved) or _REORDERED
