"""Files of JulieOps: topologies, plans, and the properties that say how names are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import UserError
from reconciler.manifests.files import label_of
from reconciler.manifests.importing import julie
from reconciler.manifests.importing.found import FoundCluster, Place
from reconciler.manifests.importing.julienames import SERVERS, names_of, properties_in
from reconciler.manifests.importing.sources import read_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from reconciler.manifests.importing.found import Reading
    from reconciler.manifests.importing.sources import Document

_CLUSTER = "kafka"


def read_julie(documents: tuple[Document, ...], properties: Iterable[Path], cwd: Path, reading: Reading) -> None:
    """Take what topologies say into a reading.

    Raises:
        UserError: Names are made in a way that is not known here, or in two ways.
    """
    said: dict[str, tuple[str, str]] = {}
    for file in properties:
        label = label_of(file, cwd)
        for key, value in properties_in(read_text(file, cwd).decode(errors="replace")).items():
            before = said.setdefault(key, (value, label))
            if before[0] != value:
                message = f"{key} is {before[0]!r} in {before[1]} and {value!r} in {label}"
                raise UserError(message, hint="Import a folder that holds the one file of properties that counts.")
        reading.unread = [each for each in reading.unread if each != label]
    try:
        names = names_of({key: value for key, (value, _) in said.items()})
    except ValueError as error:
        hint = "Write the format out with names alone, such as {{context}}.{{project}}.{{topic}}."
        raise UserError(f"how names of topics are made is not known: {error}", hint=hint) from error
    if SERVERS in said:
        servers, label = said[SERVERS]
        found = tuple(server.strip() for server in servers.split(",") if server.strip())
        reading.clusters.append(FoundCluster(name=_CLUSTER, place=Place(label), bootstrap_servers=found))
    julie.read(documents, reading, names)
