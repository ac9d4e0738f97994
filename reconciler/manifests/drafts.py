"""Drafts: documents as read, variables in place, before overlays are merged and models judge them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.manifests.documents import parse
from reconciler.manifests.files import label_of, read_bounded
from reconciler.manifests.findings import Place
from reconciler.manifests.overlays import merge
from reconciler.manifests.problems import Problem
from reconciler.manifests.substitution import Substitution

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Sequence

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


def read_drafts(
    files: Sequence[pathlib.Path], folder: pathlib.Path, values: Values, findings: Findings
) -> Iterator[Draft]:
    """Yield every document of `files`, one file at a time; what cannot be read goes to `findings`."""
    for file in files:
        label = label_of(file, folder)
        raw = read_bounded(file, label)
        if isinstance(raw, Problem):
            findings.lose(raw)
            continue
        parsed = parse(raw, label)
        findings.problems += parsed.problems
        findings.is_whole &= parsed.is_whole
        has_reference = b"${" in raw
        for document in parsed.documents:
            yield draft_of(document, label, findings, values if has_reference else None)


def draft_of(document: Document, label: str, findings: Findings, values: Values | None) -> Draft:
    """Return a document as a draft; `values` is `None` where it uses no variable."""
    places = (Place(label, document.number, document.line),)
    if values is None:
        return Draft(document.content, places, document.has_null)
    substitution = Substitution(values)
    content = substitution.of(document.content)
    findings.complain_all(places, substitution.complaints)
    return Draft(content, places, document.has_null, tuple(substitution.secrets))


def merged(base: Draft, over: Draft, findings: Findings) -> Draft:
    """Return a base with what an overlay says differently."""
    complaints: list[Complaint] = []
    content = merge(base.content, over.content, complaints)
    findings.complain_all(over.places, complaints)
    return Draft(
        content,
        (*over.places, *base.places),
        has_null=base.has_null or over.has_null,
        secrets=(*base.secrets, *over.secrets),
    )
