"""Where in the files something is said, and whether it can be changed there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reconciler.manifests.editing.contents import at
from reconciler.manifests.editing.files import EditedFile
from reconciler.manifests.editing.patches import patch_of
from reconciler.manifests.editing.textedits import UneditableError
from reconciler.manifests.files import OVERLAYS, label_of, manifest_files
from reconciler.manifests.origins import explain_origin
from reconciler.manifests.problems import path_text
from reconciler.resources.mirrorlink import MirrorLink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from reconciler.manifests.findings import Place
    from reconciler.manifests.loading import Loaded
    from reconciler.manifests.positions import Path as FieldPath
    from reconciler.resources.address import Address


ODD_LAYOUT: Final = "it is laid out so that no patch is safe"


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
            message = "it is declared by no document of its own: the namespace below it needs it"
            raise ElsewhereError(message)
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
