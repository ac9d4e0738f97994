"""Read and edit single fields of manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from reconciler.manifests.edit import EditedFile, UneditableError, format_flow_value, format_patch, read_value
from reconciler.manifests.files import OVERLAYS, Place, build_label, find_manifests
from reconciler.manifests.load import LoadedWorkspace, find_field_origins
from reconciler.manifests.positions import FieldPath, format_path
from reconciler.planning.fields import CONFIGS, PROPERTIES
from reconciler.resources.acls import (
    ACLS,
    NamespaceAcl,
    TopicAcl,
    build_rule_path,
    parse_rule,
    split_namespace_rules,
    subtract_rule,
)
from reconciler.resources.address import Address, kind_of
from reconciler.resources.base import format_duration, format_size
from reconciler.resources.configs import canonicalize_value, explain_refused_value, format_value
from reconciler.resources.mirror_link import MirrorLink
from reconciler.runtime.dataclass import dataclass, field
from reconciler.runtime.text import to_json_types

if TYPE_CHECKING:
    from reconciler.planning.actions import Value


ODD_LAYOUT: Final = "its layout allows no safe patch"


class ElsewhereError(Exception):
    """Another manifest sets the field. The message names position and remedy."""


class FieldEditError(Exception):
    """The field at `place` cannot be edited safely. The message gives the reason."""

    def __init__(self, place: Place, why: str) -> None:
        super().__init__(why)
        self.place = place


@dataclass(frozen=True, slots=True)
class Spot:
    """A resource's document and position in it. Mirrors are entries of their links."""

    place: Place
    file: EditedFile
    within: FieldPath = ()

    def get_value(self, path: FieldPath) -> Any:
        """Return the value at a path below, or `None`."""
        return read_value(self.file.read_content(self.place.number), (*self.within, *path))


@dataclass
class Manifests:
    """A workspace's manifests, with edits in memory."""

    loaded: LoadedWorkspace
    files: dict[str, EditedFile] = field(default_factory=dict)
    fresh: dict[str, str] = field(default_factory=dict)

    def build_patch(self) -> str:
        """Return all edits as a patch, relative to the workspace."""
        emptied = {label for label, file in self.files.items() if not any(after for _, after in file.texts)}
        edited = (
            format_patch(label, file.texts, is_gone=label in emptied and not self._must_keep_empty(label, emptied))
            for label, file in sorted(self.files.items())
        )
        made = (format_patch(label, [("", text)], is_new=True) for label, text in sorted(self.fresh.items()))
        return "".join([*edited, *made])

    @property
    def changed(self) -> tuple[str, ...]:
        """Edited files, without new ones."""
        return tuple(label for label, file in sorted(self.files.items()) if any(old != new for old, new in file.texts))

    def find_spot(self, address: Address, path: FieldPath = ()) -> Spot:
        """Return the position that sets or could set the field at `path`.

        Raises:
            ElsewhereError: Other manifests contribute to the value.
            FieldEditError: The file cannot be edited.
        """
        owner = self._find_owner(address)
        places = self.loaded.places.get(owner)
        if places is None:
            why = "the namespace below it needs it"
            if kind_of(owner) == "link":
                why = "it is the other half of a bidirectional link; accept that link"
            raise ElsewhereError(f"it has no document of its own: {why}")
        base = places[-1]
        spot = Spot(
            base, self._open_file(base), () if owner == address else self._find_entry_position(address, owner, base)
        )
        self._check_overlays(owner, places, (*spot.within, *path))
        if path:
            self._check_variables(address, spot, path)
        return spot

    def is_dropped(self, address: Address) -> bool:
        """Return whether a resource's document, or that of its link, was removed."""
        places = self.loaded.places.get(self._find_owner(address))
        return places is not None and self._open_file(places[-1]).read_content(places[-1].number) is None

    def _find_owner(self, address: Address) -> Address:
        if address in self.loaded.places:
            return address
        links = (
            link
            for link, declared in self.loaded.desired.items()
            if isinstance(declared.resource, MirrorLink)
            and any(mirror.address == address for mirror in declared.resource.mirrors())
        )
        return next(links, address)

    def _find_entry_position(self, address: Address, link: Address, place: Place) -> FieldPath:
        resource = self.loaded.desired[link].resource
        mirrors = resource.mirrors() if isinstance(resource, MirrorLink) else ()
        source = next(mirror.source for mirror in mirrors if mirror.address == address)
        entries = read_value(self._open_file(place).read_content(place.number), ("spec", "mirrorTopics")) or []
        for position, entry in enumerate(entries):
            if isinstance(entry, dict) and entry.get("source") == source:
                return ("spec", "mirrorTopics", position)
        message = f"its entry in {link} ({place}) is not written out there"
        raise ElsewhereError(message)

    def _check_overlays(self, owner: Address, places: tuple[Place, ...], path: FieldPath) -> None:
        for place in places:
            is_overlay = Path(place.file).parts[:1] == (OVERLAYS,)
            if is_overlay and (len(places) == 1 or self._sets_field(place, path)):
                what = format_path(path) if path else str(owner)
                raise ElsewhereError(f"the overlay of this environment sets {what}: change it there, {place}")

    def _sets_field(self, place: Place, path: FieldPath) -> bool:
        content = self._open_file(place).read_content(place.number)
        for length in range(1, len(path) + 1):
            value = read_value(content, path[:length])
            if value is None:
                parent = read_value(content, path[: length - 1])
                return isinstance(parent, dict) and path[length - 1] in parent
            if not isinstance(value, dict):
                return True
        return True

    def _check_variables(self, address: Address, spot: Spot, path: FieldPath) -> None:
        whole = (*spot.within, *path)
        content = spot.file.read_content(spot.place.number)
        for length in range(1, len(whole) + 1):
            value = read_value(content, whole[:length])
            if _has_variable(value if length == len(whole) or not isinstance(value, dict | list) else None):
                known = find_field_origins(self.loaded, address)
                where = known.get(format_path(path)) or next(iter(known.values()), str(spot.place))
                raise ElsewhereError(f"{format_path(path)} comes from a variable: change its value, {where}")

    def _open_file(self, place: Place) -> EditedFile:
        path = (self.loaded.folder / place.file).resolve()
        folder = self.loaded.folder.resolve()
        if not path.is_relative_to(folder):
            raise FieldEditError(place, "its file is outside the workspace")
        label = build_label(path, folder)
        if label not in self.files:
            try:
                self.files[label] = EditedFile(path.read_bytes().decode())
            except (OSError, UnicodeDecodeError, UneditableError) as error:
                raise FieldEditError(place, ODD_LAYOUT) from error
        return self.files[label]

    def _must_keep_empty(self, label: str, emptied: AbstractSet[str]) -> bool:
        folder = self.loaded.folder
        for listed in self.loaded.workspace.spec.manifests:
            listed_files = find_manifests(folder, [listed], apart=frozenset(), may_be_empty=True).files
            labels = {build_label(path.resolve(), folder.resolve()): path for path in listed_files}
            if label in labels and (not labels.keys() - emptied or build_label(labels[label], folder) != label):
                return True
        return False


def _has_variable(value: Any) -> bool:
    return any("${" in text for text in _list_strings(value))


def _list_strings(content: Any) -> Iterator[str]:
    match content:
        case str():
            yield content
        case dict():
            for value in content.values():
                yield from _list_strings(value)
        case list():
            for value in content:
                yield from _list_strings(value)
        case _:
            pass


_SIZES: Final = frozenset({"quotas.bytes"})
_DURATIONS: Final = frozenset({"retryTimeout", "metadataInterval", "consumerOffsetSync.interval"})


def format_config(key: str, stored: str, like: Any = None) -> Any:
    """Format a stored config like the manifest's value: `7d` for `604800000`."""
    for form in _list_candidate_forms(key, stored, like):
        try:
            if canonicalize_value(key, form) == stored:
                return form
        except ValueError:
            continue
    try:
        canonicalize_value(key, stored)
    except ValueError as error:
        message = f"{CONFIGS}{key}: no manifest can express it: {explain_refused_value(stored, error)}"
        raise ElsewhereError(message) from error
    return stored


def format_property(stored: str, like: Any = None) -> Any:
    """Format a cluster property, stored as text."""
    is_number = isinstance(like, int) and not isinstance(like, bool)
    if is_number and _parse_number(stored) is not None:
        return _parse_number(stored)
    return stored == "true" if isinstance(like, bool) and stored in {"true", "false"} else stored


def format_field(path: str, value: Value, like: Any = None) -> Any:
    """Format any other field, as a number if the manifest has one."""
    if isinstance(value, int) and not isinstance(value, bool) and not isinstance(like, int):
        if path in _SIZES:
            return format_size(value)
        if path in _DURATIONS:
            return format_duration(value)
    return to_json_types(value)


def format_configs(configs: Mapping[str, str]) -> dict[str, Any]:
    """Format the configs of a new resource."""
    return {key: format_config(key, configs[key]) for key in sorted(configs)}


def _list_candidate_forms(key: str, stored: str, like: Any) -> Iterator[Any]:
    number = _parse_number(stored)
    if isinstance(like, int) and not isinstance(like, bool) and number is not None:
        yield number
    if isinstance(like, list):
        yield stored.split(",")
    if isinstance(like, str) and like == stored:
        yield stored
    shown = format_value(key, stored)
    if shown != stored:
        yield shown
    if number is not None:
        yield number
    if stored in {"true", "false"}:
        yield stored == "true"


def _parse_number(stored: str) -> int | None:
    return int(stored) if stored.removeprefix("-").isdecimal() and str(int(stored)) == stored else None


_RULES: FieldPath = ("spec", "acls")
_UNSPLIT: Final[Mapping[str, frozenset[str]]] = {}


def accept_field(
    manifests: Manifests,
    address: Address,
    path: str,
    observed: Value,
    operations: Mapping[str, frozenset[str]] = _UNSPLIT,
) -> None:
    """Write an observed value into a manifest; `None` removes the field. Raises the errors of `Manifests.find_spot`.

    `operations`: how the platform splits a namespace's rule (see `AccessControl.operations`); empty if it does not.
    """
    is_rule = path.startswith(ACLS)
    spot = manifests.find_spot(address, _RULES if is_rule else make_field_path(address, path))
    try:
        if is_rule:
            _write_rule(spot, address, path, observed, operations)
        else:
            _write_value(spot, address, path, observed)
    except UneditableError as error:
        raise FieldEditError(spot.place, ODD_LAYOUT) from error


def describe_edit_by_hand(loaded: LoadedWorkspace, address: Address, path: str, observed: Value, place: Place) -> str:
    """Describe an edit by file, line, field and value."""
    where = _RULES if path.startswith(ACLS) else make_field_path(address, path)
    line = find_field_origins(loaded, address).get(format_path(where), str(place))
    if observed is None:
        return f"{line} {path}: take it out"
    if path.startswith(ACLS):
        return f"{line} {format_path(_RULES)}: {format_flow_value(format_rule(path, observed))}"
    return f"{line} {format_path(where)}: {format_flow_value(_format_value(path, observed, None))}"


def make_field_path(address: Address, path: str) -> FieldPath:
    """Return a field's path in the manifest. A mirror in a link has no `spec`."""
    above: FieldPath = () if kind_of(address) == "mirror" else ("spec",)
    for group in (CONFIGS, PROPERTIES):
        if path.startswith(group):
            return (*above, group.removesuffix("."), path.removeprefix(group))
    return (*above, *path.split("."))


def _write_value(spot: Spot, address: Address, path: str, observed: Value) -> None:
    place = make_field_path(address, path)
    like = spot.get_value(place)
    whole, number = (*spot.within, *place), spot.place.number
    if observed is not None:
        spot.file.set_value(number, whole, _format_value(path, observed, like))
    elif like is not None:
        spot.file.remove_value(number, whole)


def _format_value(path: str, observed: Value, like: Any) -> Any:
    if path.startswith(CONFIGS):
        return format_config(path.removeprefix(CONFIGS), str(observed), like)
    if path.startswith(PROPERTIES):
        return format_property(str(observed), like)
    return format_field(path, observed, like)


def _write_rule(
    spot: Spot, address: Address, path: str, observed: Value, operations: Mapping[str, frozenset[str]]
) -> None:
    """Write one part of an access rule, named by `path`, and keep its other parts."""
    parts = [_list_part_paths(address, rule, operations) for rule in spot.get_value(_RULES) or ()]
    places = [position for position, paths in enumerate(parts) if path in paths]
    if observed is None and not places:
        raise FieldEditError(spot.place, "no single rule there declares it")
    whole = next((position for position in places if len(parts[position]) == 1), None)
    file, number = spot.file, spot.place.number
    with file.apply_together():
        if observed is not None and whole is None:
            file.append_value(number, _RULES, format_rule(path, observed))
        for position in reversed(places):
            if observed is not None and position == whole:
                file.set_value(number, (*_RULES, position, "operations"), to_json_types(observed))
            elif len(parts[position]) == 1:
                file.remove_value(number, (*_RULES, position))
            else:
                _remove_part(spot, position, path, operations)


def _list_part_paths(
    address: Address, written_rule_content: Any, operations: Mapping[str, frozenset[str]]
) -> AbstractSet[str]:
    is_topics = kind_of(address) == "topic"
    try:
        if is_topics or not operations:
            return {build_rule_path((TopicAcl if is_topics else NamespaceAcl).model_validate(written_rule_content))}
        return {
            build_rule_path(part)
            for part in split_namespace_rules([NamespaceAcl.model_validate(written_rule_content)], operations)
        }
    except ValidationError:
        return frozenset()


def _remove_part(spot: Spot, position: int, path: str, operations: Mapping[str, frozenset[str]]) -> None:
    rule = NamespaceAcl.model_validate(spot.get_value((*_RULES, position)))
    part = next(
        candidate for candidate in split_namespace_rules([rule], operations) if build_rule_path(candidate) == path
    )
    first, *others = subtract_rule(rule, part, operations)
    file, number = spot.file, spot.place.number
    for other in others:
        file.append_value(number, _RULES, format_rule(build_rule_path(other), other.operations))
    before, after = rule.to_json(), first.to_json()
    for name in (name for name in after if after[name] != before[name]):
        file.set_value(number, (*_RULES, position, name), after[name])


def format_rule(path: str, operations: Value) -> dict[str, Any]:
    """Return a rule without default fields."""
    rule = parse_rule(path, operations if isinstance(operations, tuple | list) else ())
    shown = {name: NamespaceAcl.model_fields[name].default for name in ("permission", "host", "resources", "names")}
    fields = rule.to_json()
    return {name: value for name, value in fields.items() if name not in shown or value != to_json_types(shown[name])}
