"""Where each value of an address is written: `file:line`, worked out when `explain` asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.manifests.documents import parse
from reconciler.manifests.files import read_bounded
from reconciler.manifests.findings import Findings
from reconciler.manifests.problems import Problem, path_text
from reconciler.manifests.substitution import Substitution
from reconciler.resources.mirrorlink import MirrorLink

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.manifests.findings import Place
    from reconciler.manifests.loading import Loaded
    from reconciler.manifests.positions import Path
    from reconciler.resources.address import Address


def explain_origin(loaded: Loaded, address: Address) -> Mapping[str, str]:
    """Return, for each field of an address that is written, where: `spec.partitions` → `manifests/topics.yaml:12`.

    A value that came from a variable also names it: `… (var.partitions of values.yaml)`. A mirror is written in its
    link. Empty for what the files do not declare.
    """
    places, within = _written(loaded, address)
    origins: dict[Path, str] = {}
    findings = Findings(loaded.folder)
    for place in reversed(places):  # the base first: what the overlay says replaces it
        content = _content(loaded, place)
        substitution = Substitution(loaded.values)
        substitution.of(content)
        for path, value in _said(content):
            for replaced in [known for known in origins if known[: len(path)] == path]:
                del origins[replaced]
            if value is not None:
                used = substitution.used.get(path)
                origins[path] = findings.where((place,), path) + (f" ({used})" if used else "")
    return {
        path_text(path[len(within) :]): origin
        for path, origin in sorted(origins.items(), key=lambda item: list(map(str, item[0])))
        if path[: len(within)] == within
    }


def _written(loaded: Loaded, address: Address) -> tuple[tuple[Place, ...], Path]:
    if address in loaded.places:
        return loaded.places[address], ()
    for link_address, declared in loaded.desired.items():
        if isinstance(declared.resource, MirrorLink):
            for position, mirror in enumerate(declared.resource.mirrors()):
                if mirror.address == address:
                    return loaded.places[link_address], ("spec", "mirrorTopics", position)
    return (), ()


def _content(loaded: Loaded, place: Place) -> Any:
    raw = read_bounded(loaded.folder / place.file, place.file)
    if isinstance(raw, Problem):
        return None
    documents = parse(raw, place.file).documents
    return documents[place.number].content if place.number < len(documents) else None


def _said(content: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every leaf with its value; before the entries of a list, the list, which replaces another as a whole."""
    match content:
        case dict():
            for key, value in content.items():
                yield from _said(value, (*path, key))
        case list():
            yield path, None
            for index, value in enumerate(content):
                yield from _said(value, (*path, index))
        case _:
            yield path, content
