"""Which file each manifest goes into, as a person would lay them out: one a namespace, one for each other kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.resources.address import kind_of, rank
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic
from reconciler.workflow.exporting.documents import document_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Inventory
    from reconciler.resources.kinds import Resource

NAMESPACES: Final = "namespaces"
_FILES: Final[Mapping[str, str]] = {
    "cluster": "clusters.yaml",
    "policy": "policies.yaml",
    "topic": "topics.yaml",
    "link": "links.yaml",
}


def texts_of(resources: Iterable[Resource], inventory: Inventory) -> dict[str, str]:
    """Return the text of each file, by its name: a namespace with its topics, and what is in none by kind."""
    documents: dict[str, list[str]] = {}
    names: dict[tuple[str, str], str] = {}
    for resource in sorted(resources, key=lambda each: rank(each.address)):
        name = _file_of(resource.address, resource, names)
        if name is not None:
            documents.setdefault(name, []).append(document_text(resource, inventory))
    return {name: "---\n".join(found) for name, found in sorted(documents.items())}


def _file_of(address: Address, resource: Resource, names: dict[tuple[str, str], str]) -> str | None:
    namespace = ""
    if isinstance(resource, Namespace):
        namespace = resource.metadata.name
    elif isinstance(resource, Topic):
        namespace = resource.metadata.namespace
    if not namespace:
        return _FILES.get(kind_of(address))
    place = str(resource.cluster), namespace
    if place not in names:
        names[place] = _free(_path(namespace), names.values())
    return names[place]


def _path(namespace: str) -> str:
    """Return where a namespace is written, its tiers as folders.

    What begins with a dot would not be read, and a folder never has the name of a file; no tier has a `_`.
    """
    tiers = [f"_{tier}" if tier.startswith(".") else tier for tier in namespace.split(":")]
    return "/".join([NAMESPACES, *(f"{tier}_" if "." in tier else tier for tier in tiers[:-1]), tiers[-1]])


def _free(stem: str, taken: Iterable[str]) -> str:
    """Return a file name that differs from all others by more than its case: some file systems do not see it."""
    there = {name.lower() for name in taken}
    number, name = 2, f"{stem}.yaml"
    while name.lower() in there:
        name, number = f"{stem}-{number}.yaml", number + 1
    return name
