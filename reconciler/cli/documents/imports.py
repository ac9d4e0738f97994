"""JSON of `import`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from reconciler.cli.documents.base import Document, Part

if TYPE_CHECKING:
    from reconciler.manifests.importing.found import Lost
    from reconciler.workflow.importing.run import Imported


class ImportedPart(Part):
    """One resource of which a manifest was written."""

    address: str
    source: str | None = Field(description="File and line it was written at; null where it was made of several.")


class ImportedClusterPart(Part):
    """A cluster that manifests name."""

    name: str
    declared: bool = Field(description="Whether the workspace, or what was written, declares it.")
    manifest: str | None = Field(description="What declares it, as far as the files say how it is reached.")


class LostPart(Part):
    """Something that was not carried over."""

    file: str
    line: int | None
    subject: str = Field(description="What it is about, such as `topic orders`.")
    field: str = Field(description="Which field of it; empty where all of it is meant.")
    message: str
    hint: str


class ImportDocument(Document):
    """What was imported."""

    format: Literal["reconciler.import/1"] = "reconciler.import/1"
    tool: str
    path: str
    read: tuple[str, ...] = Field(description="The files that were read.")
    unread: tuple[str, ...] = Field(description="Files of the same form that are none of the tool's.")
    files: tuple[str, ...] = Field(description="What was written.")
    clusters: tuple[ImportedClusterPart, ...]
    imported: tuple[ImportedPart, ...]
    left_out: tuple[LostPart, ...] = Field(description="What is carried over once it is written otherwise.")
    unsaid: tuple[LostPart, ...] = Field(description="What manifests have no words for.")

    @classmethod
    def of(cls, imported: Imported) -> ImportDocument:
        """Say all of it."""
        places = imported.places
        return cls(
            tool=imported.tool,
            path=imported.path,
            read=imported.read,
            unread=imported.unread,
            files=tuple(map(str, imported.files)),
            clusters=tuple(
                ImportedClusterPart(name=each.name, declared=each.is_declared, manifest=each.manifest)
                for each in imported.clusters
            ),
            imported=tuple(
                ImportedPart(address=address, source=str(places[address]) if address in places else None)
                for address in imported.addresses
            ),
            left_out=tuple(map(_lost, imported.left_out)),
            unsaid=tuple(map(_lost, imported.unsaid)),
        )


def _lost(lost: Lost) -> LostPart:
    return LostPart(
        file=lost.place.file,
        line=lost.place.line,
        subject=lost.subject,
        field=lost.field,
        message=lost.why,
        hint=lost.hint,
    )
