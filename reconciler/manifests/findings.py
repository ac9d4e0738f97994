"""All that is found wrong in one run, each thing located in the file where its author wrote it."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING, NamedTuple

from reconciler.manifests.documents import PARSER
from reconciler.manifests.files import is_outside, outside, read_bounded
from reconciler.manifests.positions import Spot, spots
from reconciler.manifests.problems import Problem, path_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.manifests.files import Found
    from reconciler.manifests.positions import Path
    from reconciler.resources.base import Complaint


class Place(NamedTuple):
    """A document: its file as named in messages, which of the file's documents it is, the line it begins on."""

    file: str
    number: int
    line: int

    def __str__(self) -> str:
        """Return `manifests/topics.yaml:88`."""
        return f"{self.file}:{self.line}"


class Findings:
    """Problems and warnings of one run.

    A resource has one place, or two where an overlay adds to a base: the overlay first.
    """

    def __init__(
        self, folder: pathlib.Path, *, within: pathlib.Path | None = None, typed: tuple[pathlib.Path, ...] = ()
    ) -> None:
        """`within`: the folder outside of which nothing is read, but files that were `typed` as lying there."""
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.is_whole = True
        """Every file was read to its end, every document has an address: only then does absence mean anything."""
        self.within = within
        self._folder = folder
        self._typed = typed
        self._known: dict[str, tuple[Mapping[Path, Spot], ...]] = {}

    def read(self, path: pathlib.Path, label: str) -> bytes | Problem:
        """Return what a file holds, or why it may not or cannot be read."""
        if self.within is not None and is_outside(path, self.within):
            is_typed = path in self._typed and not pathlib.Path(os.path.abspath(path)).is_relative_to(self.within)  # noqa: PTH100 - links stay
            if not is_typed:
                return outside(label)
        return read_bounded(path, label)

    def lose(self, problem: Problem) -> None:
        """Keep why a file could not be read."""
        self.problems.append(problem)
        self.is_whole = False

    def add(self, found: Found) -> None:
        """Keep what came to light when files were looked for."""
        self.problems += found.problems
        self.warnings += found.warnings
        self.is_whole &= not found.problems

    def complain(self, places: tuple[Place, ...], complaint: Complaint) -> None:
        """Keep what is wrong with a document."""
        self.problems.append(self._located(places, complaint))

    def complain_all(self, places: tuple[Place, ...], complaints: Iterable[Complaint]) -> None:
        """Keep everything that is wrong with a document."""
        for complaint in complaints:
            self.complain(places, complaint)

    def warn(self, places: tuple[Place, ...], complaint: Complaint) -> None:
        """Keep what is odd about a document, and no error."""
        self.warnings.append(self._located(places, complaint))

    def where(self, places: tuple[Place, ...], path: Path) -> str:
        """Return `file:line` of a field."""
        place, spot = self.spot(places, path)
        return f"{place.file}:{spot.line}"

    def spot(self, places: tuple[Place, ...], path: Path) -> tuple[Place, Spot]:
        """Return where a field is written: in the overlay if it is there, else in the base, else its parent."""
        for length in range(len(path), 0, -1):
            for place in places:
                if found := self.spots(place).get(path[:length]):
                    return place, found
        place = places[-1]
        return place, self.spots(place).get((), Spot(place.line, 1))

    def spots(self, place: Place) -> Mapping[Path, Spot]:
        """Return every place of one document; the file is read again, once."""
        if place.file not in self._known:
            raw = self.read(self._folder / place.file, place.file)
            self._known[place.file] = () if isinstance(raw, Problem) else spots(raw, PARSER)
        documents = self._known[place.file]
        return documents[place.number] if place.number < len(documents) else {}

    def _located(self, places: tuple[Place, ...], complaint: Complaint) -> Problem:
        place, spot = self.spot(places, complaint.at)
        return Problem(
            place.file, spot.line, spot.column, path_text(complaint.at), complaint.message, complaint.hint.rstrip(".")
        )
