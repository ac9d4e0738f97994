"""Drafts: documents as read, variables in place, before overlays are merged and models judge them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.manifests.documents import parse
from reconciler.manifests.files import label_of
from reconciler.manifests.findings import Place
from reconciler.manifests.overlays import merge
from reconciler.manifests.problems import Problem
from reconciler.manifests.substitution import Substitution

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Mapping, Sequence

    from reconciler.manifests.documents import Document
    from reconciler.manifests.findings import Findings
    from reconciler.manifests.positions import Path
    from reconciler.manifests.variables import Values
    from reconciler.resources.base import Complaint


class Draft(NamedTuple):
    """What is to become one resource.

    One place, or two where an overlay adds to a base: the overlay first.
    """

    content: Any
    places: tuple[Place, ...]
    has_null: bool
    secrets: tuple[Path, ...] = ()
    """Where it holds `${env:…}` or `${file:…}`."""
    variables: Mapping[Path, str] = MappingProxyType({})
    """Where a variable's value stands → which, and who defined it: `var.partitions of values.yaml`."""
    complaints: tuple[Complaint, ...] = ()
    """What is wrong with it already."""


def read_drafts(
    files: Sequence[pathlib.Path], folder: pathlib.Path, values: Values, findings: Findings
) -> Iterator[Draft]:
    """Yield every document of `files`, one file at a time; what cannot be read goes to `findings`."""
    for file in files:
        label = label_of(file, folder)
        raw = findings.read(file, label)
        if isinstance(raw, Problem):
            findings.lose(raw)
            continue
        parsed = parse(raw, label)
        findings.problems += parsed.problems
        findings.is_whole &= parsed.is_whole
        has_reference = b"${" in raw
        for document in parsed.documents:
            yield draft_of(document, label, values if has_reference else None)


def draft_of(document: Document, label: str, values: Values | None) -> Draft:
    """Return a document as a draft; `values` is `None` where it uses no variable."""
    places = (Place(label, document.number, document.line),)
    if values is None:
        return Draft(document.content, places, document.has_null)
    substitution = Substitution(values)
    return Draft(
        content=substitution.of(document.content),
        places=places,
        has_null=document.has_null,
        secrets=tuple(substitution.secrets),
        variables=substitution.used,
        complaints=tuple(substitution.complaints),
    )


def merged(base: Draft, over: Draft) -> Draft:
    """Return a base with what an overlay says differently."""
    complaints: list[Complaint] = []
    return Draft(
        content=merge(base.content, over.content, complaints),
        places=(*over.places, *base.places),
        has_null=base.has_null or over.has_null,
        secrets=(*base.secrets, *over.secrets),
        variables={**base.variables, **over.variables},
        complaints=(*base.complaints, *over.complaints, *complaints),
    )
