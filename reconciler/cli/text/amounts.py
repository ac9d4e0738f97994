"""Texts for field values and their changes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeGuard, cast

from reconciler.planning.actions import START_OFFSETS
from reconciler.resources.acls import ACLS
from reconciler.resources.base import format_size
from reconciler.resources.cluster_properties import EMBEDDED_PROPERTIES
from reconciler.resources.configs import format_value
from reconciler.runtime.text import format_bytes, pluralize, to_json_types

if TYPE_CHECKING:
    from deepdiff.model import DiffLevel

    from reconciler.operations.clusters.namespaces import QuotaUsage
    from reconciler.planning.actions import Change, Value


_UNSET: Final = "unset"


class LeafChange(NamedTuple):
    """A change inside a nested value; added and removed items have one side."""

    place: str
    before: str | None
    after: str | None

    @property
    def sides_text(self) -> str:
        """Old and new value, or the added or removed item."""
        if self.before is None or self.after is None:
            return f"-{self.before}" if self.after is None else f"+{self.after}"
        return f"{self.before} → {self.after}"

    @property
    def text(self) -> str:
        """Path, old and new value."""
        is_item = self.before is None or self.after is None
        return f"{self.place} {self.sides_text}" if is_item else f"{self.place}: {self.sides_text}"


def is_nested(before: object, after: object) -> bool:
    """Return whether both values are mappings, or lists with nested items."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return True
    return _is_list(before) and _is_list(after) and any(_is_container(item) for item in (*before, *after))


def list_leaf_changes(name: str, before: object, after: object) -> list[LeafChange]:
    """List the changes between two nested values: `filters[3].name: d → dd`.

    Order in lists is ignored: equal items are dropped, the most similar others are paired. Indexes refer to the new
    list; removed items have none.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return _diff_leaves(name, to_json_types(before), to_json_types(after))
    old, new = ([to_json_types(item) for item in cast("Sequence[object]", side)] for side in (before, after))
    gone, came = _find_unmatched(old, new), _find_unmatched(new, old)
    pairs = _pair_alike(gone, came)
    changed = _diff_leaves(name, {new: gone[old] for old, new in pairs}, {new: came[new] for _, new in pairs})
    compared_before, compared_after = {old for old, _ in pairs}, {new for _, new in pairs}
    changed += [
        LeafChange(name, format_json(item), None) for index, item in gone.items() if index not in compared_before
    ]
    return changed + [
        LeafChange(name, None, format_json(item)) for index, item in came.items() if index not in compared_after
    ]


def format_json(value: object) -> str:
    """Format one line of JSON."""
    return json.dumps(to_json_types(value), ensure_ascii=False, sort_keys=True)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


def _is_container(item: object) -> bool:
    return isinstance(item, Mapping | list | tuple)


def _find_unmatched(items: Sequence[object], others: Sequence[object]) -> dict[int, object]:
    spare = Counter(map(format_json, others))
    unmatched: dict[int, object] = {}
    for index, item in enumerate(items):
        text = format_json(item)
        if spare[text]:
            spare[text] -= 1
        else:
            unmatched[index] = item
    return unmatched


def _pair_alike(gone: Mapping[int, object], came: Mapping[int, object]) -> list[tuple[int, int]]:
    ranked = sorted(
        (-alike, abs(old - new), old, new)
        for old, before in gone.items()
        for new, after in came.items()
        if (alike := _count_common(before, after))
    )
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for _, _, old, new in ranked:
        if old not in pairs and new not in taken:
            pairs[old] = new
            taken.add(new)
    return list(pairs.items())


def _count_common(before: object, after: object) -> int:
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        return 0
    return sum(key in after and after[key] == value for key, value in before.items())


def _diff_leaves(name: str, before: object, after: object) -> list[LeafChange]:
    if before == after:
        return []
    from deepdiff.diff import DeepDiff
    from deepdiff.helper import notpresent

    def text(value: object) -> str:
        return _UNSET if value is notpresent else _format_leaf(value)

    # DeepDiff's `ignore_order` is not used: its result depends on Python's hash seed.
    differences: Mapping[str, Iterable[DiffLevel]] = DeepDiff(before, after, view="tree", threshold_to_diff_deeper=0)
    levels = [
        (level.path(use_t2=True, output_format="list"), level.t1, level.t2)
        for reported in differences.values()
        for level in reported
    ]
    levels.sort(key=lambda level: [(isinstance(part, str), part) for part in level[0]])
    return [LeafChange(f"{name}{_format_path(path)}", text(old), text(new)) for path, old, new in levels]


def _format_path(path: Sequence[int | str]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def _format_leaf(value: object) -> str:
    if isinstance(value, str):
        return value or "''"
    return _UNSET if value is None else format_json(value)


_CONFIGS: Final = "configs."
_PROPERTIES: Final = "properties."
_QUOTA_OF_BYTES: Final = "quotas.bytes"
_MAX_CONFIGS: Final = 3
_REORDERED: Final = "in another order"
_LONG_NUMBER: Final = re.compile(r"(\d{5,})([A-Za-z]*)")
_WHOLE: Final = re.compile(r"\d{1,19}")


def format_field_name(path: str) -> str:
    """Format a field's name: a config's key, or `acl PRINCIPAL …`."""
    return f"acl {path.removeprefix(ACLS)}" if path.startswith(ACLS) else path.removeprefix(_CONFIGS)


def format_field_value(path: str, value: Value | list[object]) -> str:
    """Format a field's value with its unit."""
    if path.startswith(_CONFIGS) and (value is None or isinstance(value, str)):
        return format_value(format_field_name(path), value)
    if path.startswith(_PROPERTIES) and isinstance(value, str):
        return format_value(path.removeprefix(_PROPERTIES), value, EMBEDDED_PROPERTIES)
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
            return format_json(value)


def format_field_change(path: str, before: Value | list[object], after: Value | list[object]) -> str:
    """Format a field's change: `7d → 36h`."""
    return " → ".join(format_field_sides(path, before, after))


def format_field_sides(path: str, before: Value | list[object], after: Value | list[object]) -> tuple[str, str]:
    """Format both values in the same unit, that of a long number."""
    texts = [format_field_value(path, before), format_field_value(path, after)]
    if isinstance(before, str) and isinstance(after, str):
        for long, (raw, other) in enumerate(((before, after), (after, before))):
            quantity = _LONG_NUMBER.fullmatch(texts[long])
            if quantity is None or not int(quantity[1]) or not _WHOLE.fullmatch(raw) or not _WHOLE.fullmatch(other):
                continue
            one, rest = divmod(int(raw), int(quantity[1]))
            if not rest and int(other) > 0 and int(other) % one == 0:
                texts[1 - long] = f"{int(other) // one}{quantity[2]}"
                break
    return texts[0], texts[1]


def format_changes(change: Change) -> list[str]:
    """Format a changed field as one text per change inside it."""
    if not is_nested(change.before, change.after):
        return [format_change(change)]
    name = format_field_name(change.path)
    return [leaf.text for leaf in list_leaf_changes(name, change.before, change.after)] or [f"{name} {_REORDERED}"]


def format_change(change: Change) -> str:
    """Format a changed field: `retention.ms 7d → 3d`, `+acl allow User:checkout: read`."""
    if change.path.startswith(ACLS):
        return _format_rule_change(change)
    if change.path.startswith(START_OFFSETS) and isinstance(change.before, int) and isinstance(change.after, int):
        number, offsets = change.path.removeprefix(START_OFFSETS), pluralize(change.after - change.before, "offset")
        return f"partition {number}: first offset {change.before:,} → {change.after:,}, {offsets} deleted"
    if isinstance(change.before, tuple) and isinstance(change.after, tuple):
        return f"{format_field_name(change.path)} {_format_member_changes(change.before, change.after)}"
    return f"{format_field_name(change.path)} {format_field_change(change.path, change.before, change.after)}"


def format_inherited_configs(changes: Sequence[Change]) -> str:
    """Format the configs that a moved topic inherits; empty if none."""
    return f", inherits {', '.join(map(format_change, changes))}" if changes else ""


def _format_rule_change(change: Change) -> str:
    sides = [format_field_value(change.path, side) for side in (change.before, change.after) if side is not None]
    sign = "+" if change.before is None else "-" if change.after is None else ""
    return f"{sign}{format_field_name(change.path)}: {' → '.join(sides)}"


def format_configs(configs: Mapping[str, str], prefix: str = _CONFIGS) -> str:
    """Format configs or cluster properties, or their number if there are many."""
    if len(configs) > _MAX_CONFIGS:
        return f"{len(configs)} {prefix.rstrip('.')}"
    return ", ".join(f"{key} {format_field_value(prefix + key, configs[key])}" for key in sorted(configs))


def format_quota_usage(usage: Iterable[QuotaUsage]) -> str:
    """Format quota usage: `topics 3 of 100, bytes 2 GiB of 1TiB`."""
    return ", ".join(
        f"{row.quota} {'?' if row.used is None else format_bytes(row.used) if row.quota == 'bytes' else row.used}"
        f" of {format_field_value(f'quotas.{row.quota}', row.limit)}"
        for row in usage
    )


def _format_member_changes(before: tuple[object, ...], after: tuple[object, ...]) -> str:
    old, new = ([format_json(item) for item in side] for side in (before, after))
    moved = [f"-{item}" for item in old if item not in new] + [f"+{item}" for item in new if item not in old]
    return " ".join(moved) or _REORDERED
