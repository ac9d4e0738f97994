"""Find and write single fields of manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from reconciler.manifests.edit import EditedFile, UneditableError, at, patch_of, yaml_text
from reconciler.manifests.files import OVERLAYS, Place, label_of, manifest_files
from reconciler.manifests.load import Loaded, explain_origin
from reconciler.manifests.positions import FieldPath, path_text
from reconciler.planning.fields import CONFIGS, PROPERTIES
from reconciler.resources.acls import (
    ACLS,
    NamespaceAcl,
    TopicAcl,
    namespace_rules_apart,
    rule_at,
    rule_path,
    rule_without,
)
from reconciler.resources.address import Address, kind_of
from reconciler.resources.base import format_duration, format_size
from reconciler.resources.configs import canonical_value, refused_value, show_value
from reconciler.resources.mirror_link import MirrorLink
from reconciler.runtime.text import plain

if TYPE_CHECKING:
    from reconciler.planning.actions import Value


# Where in the files something is said, and whether it can be changed there.


ODD_LAYOUT: Final = "its layout allows no safe patch"


class ElsewhereError(Exception):
    """What is to be changed is not said in a manifest of its own; the message says where it is, and what to do."""


class ByHandError(Exception):
    """It is said in a document of its own, at `place`, which no patch can safely change; the message says why."""

    def __init__(self, place: Place, why: str) -> None:
        """Keep where it is."""
        super().__init__(why)
        self.place = place


@dataclass(frozen=True, slots=True)
class Spot:
    """One document, and where in it an address is said: a mirror is an entry of its link."""

    place: Place
    file: EditedFile
    within: FieldPath = ()

    def said(self, path: FieldPath) -> Any:
        """Return what is written at a path; `None` where nothing is."""
        return at(self.file.content(self.place.number), (*self.within, *path))


@dataclass
class Manifests:
    """The files of a workspace while they are changed, in memory alone."""

    loaded: Loaded
    files: dict[str, EditedFile] = field(default_factory=dict)
    """By their real names, relative to the workspace: git changes nothing through a link."""
    fresh: dict[str, str] = field(default_factory=dict)
    """New files by their names."""

    def patch(self) -> str:
        """Return everything that was changed, as one patch; names count from the workspace."""
        emptied = {label for label, file in self.files.items() if not any(after for _, after in file.pieces)}
        edited = (
            patch_of(label, file.pieces, is_gone=label in emptied and not self._is_needed(label, emptied))
            for label, file in sorted(self.files.items())
        )
        made = (patch_of(label, [("", text)], is_new=True) for label, text in sorted(self.fresh.items()))
        return "".join([*edited, *made])

    @property
    def changed(self) -> tuple[str, ...]:
        """The files that were there and say something else now."""
        return tuple(label for label, file in sorted(self.files.items()) if any(old != new for old, new in file.pieces))

    def spot(self, address: Address, path: FieldPath = ()) -> Spot:
        """Return where an address says what stands at `path`, or could say it.

        Raises:
            ElsewhereError: It comes from somewhere that is not for this address alone.
            ByHandError: Its file cannot be edited.
        """
        owner = self._owner(address)
        places = self.loaded.places.get(owner)
        if places is None:
            why = "the namespace below it needs it"
            if kind_of(owner) == "link":
                why = "it is the other half of a bidirectional link; accept that link"
            raise ElsewhereError(f"it is declared by no document of its own: {why}")
        base = places[-1]
        spot = Spot(base, self._file(base), () if owner == address else self._entry(address, owner, base))
        self._check_overlays(owner, places, (*spot.within, *path))
        if path:
            self._check_variables(address, spot, path)
        return spot

    def is_dropped(self, address: Address) -> bool:
        """Tell whether the document that says an address was taken out already: a mirror goes with its link."""
        places = self.loaded.places.get(self._owner(address))
        return places is not None and self._file(places[-1]).content(places[-1].number) is None

    def _owner(self, address: Address) -> Address:
        if address in self.loaded.places:
            return address
        links = (
            link
            for link, declared in self.loaded.desired.items()
            if isinstance(declared.resource, MirrorLink)
            and any(mirror.address == address for mirror in declared.resource.mirrors())
        )
        return next(links, address)

    def _entry(self, address: Address, link: Address, place: Place) -> FieldPath:
        """Return where in its link a mirror stands now: entries before it may have been taken out."""
        resource = self.loaded.desired[link].resource
        mirrors = resource.mirrors() if isinstance(resource, MirrorLink) else ()
        source = next(mirror.source for mirror in mirrors if mirror.address == address)
        entries = at(self._file(place).content(place.number), ("spec", "mirrorTopics")) or []
        for position, entry in enumerate(entries):
            if isinstance(entry, dict) and entry.get("source") == source:
                return ("spec", "mirrorTopics", position)
        message = f"its entry in {link} ({place}) is not written out there"
        raise ElsewhereError(message)

    def _check_overlays(self, owner: Address, places: tuple[Place, ...], path: FieldPath) -> None:
        for place in places:
            is_overlay = Path(place.file).parts[:1] == (OVERLAYS,)
            if is_overlay and (len(places) == 1 or self._says(place, path)):
                what = path_text(path) if path else str(owner)
                raise ElsewhereError(f"the overlay of this environment says {what}: change it there, {place}")

    def _says(self, place: Place, path: FieldPath) -> bool:
        """Tell whether a document says anything about a path: itself, something below it, or all above it at once."""
        content = self._file(place).content(place.number)
        for length in range(1, len(path) + 1):
            said = at(content, path[:length])
            if said is None:
                parent = at(content, path[: length - 1])
                return isinstance(parent, dict) and path[length - 1] in parent
            if not isinstance(said, dict):
                return True
        return True

    def _check_variables(self, address: Address, spot: Spot, path: FieldPath) -> None:
        whole = (*spot.within, *path)
        content = spot.file.content(spot.place.number)
        for length in range(1, len(whole) + 1):
            said = at(content, whole[:length])
            if _has_variable(said if length == len(whole) or not isinstance(said, dict | list) else None):
                known = explain_origin(self.loaded, address)
                where = known.get(path_text(path)) or next(iter(known.values()), str(spot.place))
                raise ElsewhereError(f"{path_text(path)} comes from a variable: change its value, {where}")

    def _file(self, place: Place) -> EditedFile:
        path = (self.loaded.folder / place.file).resolve()
        folder = self.loaded.folder.resolve()
        if not path.is_relative_to(folder):
            raise ByHandError(place, "its file lies outside the workspace")
        label = label_of(path, folder)
        if label not in self.files:
            try:
                self.files[label] = EditedFile(path.read_bytes().decode())
            except (OSError, UnicodeDecodeError, UneditableError) as error:
                raise ByHandError(place, ODD_LAYOUT) from error
        return self.files[label]

    def _is_needed(self, label: str, emptied: AbstractSet[str]) -> bool:
        """Tell whether a file has to stay though it says nothing.

        A path of `spec.manifests` is never without one, and a link never leads nowhere.
        """
        folder = self.loaded.folder
        for listed in self.loaded.workspace.spec.manifests:
            found = manifest_files(folder, [listed], apart=frozenset(), may_be_empty=True).files
            labels = {label_of(path.resolve(), folder.resolve()): path for path in found}
            if label in labels and (not labels.keys() - emptied or label_of(labels[label], folder) != label):
                return True
        return False


def _has_variable(said: Any) -> bool:
    return any("${" in text for text in _texts(said))


def _texts(said: Any) -> Iterator[str]:
    match said:
        case str():
            yield said
        case dict():
            for value in said.values():
                yield from _texts(value)
        case list():
            for value in said:
                yield from _texts(value)
        case _:
            pass


# Values that clusters hold as people write them in a manifest, in the words their author used before.


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
    try:
        canonical_value(key, stored)
    except ValueError as error:
        message = f"{CONFIGS}{key}: no manifest can say it: {refused_value(stored, error)}"
        raise ElsewhereError(message) from error
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


_RULES: FieldPath = ("spec", "acls")
_AS_WRITTEN: Final[Mapping[str, frozenset[str]]] = {}
"""Of a platform that keeps rules as they are written."""


def accept_field(
    manifests: Manifests,
    address: Address,
    path: str,
    observed: Value,
    operations: Mapping[str, frozenset[str]] = _AS_WRITTEN,
) -> None:
    """Write what was observed; a field that the cluster has not is taken out.

    `operations` are those of a platform that keeps rules of namespaces in parts: `AccessControl.operations`.

    Raises:
        ElsewhereError: It is said elsewhere.
        ByHandError: Its document is laid out so that no patch is safe.
    """
    is_rule = path.startswith(ACLS)
    spot = manifests.spot(address, _RULES if is_rule else place_of(address, path))
    try:
        if is_rule:
            _accept_rule(spot, address, path, observed, operations)
        else:
            _accept_value(spot, address, path, observed)
    except UneditableError as error:
        raise ByHandError(spot.place, ODD_LAYOUT) from error


def field_by_hand(loaded: Loaded, address: Address, path: str, observed: Value, place: Place) -> str:
    """Return what to write where, for the process that does by hand what no patch says: file, line, field, value."""
    where = _RULES if path.startswith(ACLS) else place_of(address, path)
    line = explain_origin(loaded, address).get(path_text(where), str(place))
    if observed is None:
        return f"{line} {path}: take it out"
    if path.startswith(ACLS):
        return f"{line} {path_text(_RULES)}: {yaml_text(written_rule(path, observed))}"
    return f"{line} {path_text(where)}: {yaml_text(_written(path, observed, None))}"


def place_of(address: Address, path: str) -> FieldPath:
    """Return where a manifest says a field; an entry of a link has no `spec`, and keys of configs may hold dots."""
    above: FieldPath = () if kind_of(address) == "mirror" else ("spec",)
    for group in (CONFIGS, PROPERTIES):
        if path.startswith(group):
            return (*above, group.removesuffix("."), path.removeprefix(group))
    return (*above, *path.split("."))


def _accept_value(spot: Spot, address: Address, path: str, observed: Value) -> None:
    place = place_of(address, path)
    like = spot.said(place)
    whole, number = (*spot.within, *place), spot.place.number
    if observed is not None:
        spot.file.set(number, whole, _written(path, observed, like))
    elif like is not None:
        spot.file.remove(number, whole)


def _written(path: str, observed: Value, like: Any) -> Any:
    if path.startswith(CONFIGS):
        return written_config(path.removeprefix(CONFIGS), str(observed), like)
    if path.startswith(PROPERTIES):
        return written_property(str(observed), like)
    return written_field(path, observed, like)


def _accept_rule(
    spot: Spot, address: Address, path: str, observed: Value, operations: Mapping[str, frozenset[str]]
) -> None:
    """Keep one rule of this path, with the operations observed; what its author wrote twice is one rule.

    Where a platform keeps a rule in parts, a path is one part: the rule goes on saying the others.
    """
    parts = [_paths_of(address, rule, operations) for rule in spot.said(_RULES) or ()]
    places = [position for position, paths in enumerate(parts) if path in paths]
    if observed is None and not places:
        raise ByHandError(spot.place, "no rule there says just that")
    whole = next((position for position in places if len(parts[position]) == 1), None)
    file, number = spot.file, spot.place.number
    with file.together():
        if observed is not None and whole is None:
            file.append(number, _RULES, written_rule(path, observed))
        for position in reversed(places):
            if observed is not None and position == whole:
                file.set(number, (*_RULES, position, "operations"), plain(observed))
            elif len(parts[position]) == 1:
                file.remove(number, (*_RULES, position))
            else:
                _take_part(spot, position, path, operations)


def _paths_of(address: Address, said: Any, operations: Mapping[str, frozenset[str]]) -> AbstractSet[str]:
    """Return the paths of all that a rule is kept as."""
    is_topics = kind_of(address) == "topic"
    try:
        if is_topics or not operations:
            return {rule_path((TopicAcl if is_topics else NamespaceAcl).model_validate(said))}
        return {rule_path(part) for part in namespace_rules_apart([NamespaceAcl.model_validate(said)], operations)}
    except ValidationError:
        return frozenset()


def _take_part(spot: Spot, position: int, path: str, operations: Mapping[str, frozenset[str]]) -> None:
    """Let a rule say everything but one part of it."""
    rule = NamespaceAcl.model_validate(spot.said((*_RULES, position)))
    part = next(each for each in namespace_rules_apart([rule], operations) if rule_path(each) == path)
    first, *others = rule_without(rule, part, operations)
    file, number = spot.file, spot.place.number
    for other in others:
        file.append(number, _RULES, written_rule(rule_path(other), other.operations))
    before, after = rule.to_json(), first.to_json()
    for name in (name for name in after if after[name] != before[name]):
        file.set(number, (*_RULES, position, name), after[name])


def written_rule(path: str, operations: Value) -> dict[str, Any]:
    """Return a rule as it is written: without what holds anyway."""
    rule = rule_at(path, operations if isinstance(operations, tuple | list) else ())
    shown = {name: NamespaceAcl.model_fields[name].default for name in ("permission", "host", "resources", "names")}
    said = rule.to_json()
    return {name: value for name, value in said.items() if name not in shown or value != plain(shown[name])}
