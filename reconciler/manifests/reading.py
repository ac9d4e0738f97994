"""One document in, one resource out: its kind, its model, and every complaint about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pydantic import ValidationError

from reconciler.manifests.fields import is_secret
from reconciler.manifests.scalars import kind_of_value
from reconciler.manifests.sentences import complaints_of
from reconciler.manifests.suggestions import did_you_mean
from reconciler.resources.base import Complaint
from reconciler.resources.kinds import WRITABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.manifests.positions import Path
    from reconciler.resources.kinds import Resource
    from reconciler.resources.workspace import Workspace

API_VERSION: Final = "reconciler/v1"

Writable: TypeAlias = "Workspace | Resource"

_SHAPE: Final = "Every document has apiVersion, kind, metadata and spec"


def read(content: Any, *, secrets: Sequence[Path] = ()) -> tuple[Writable | None, list[Complaint]]:
    """Return the resource a document declares, or `None` and what is wrong with it.

    `secrets`: where it holds `${env:…}` or `${file:…}`.
    """
    if complaints := list(header_complaints(content)):
        return None, complaints
    model = WRITABLE[content["kind"]]
    complaints = [
        Complaint("only secrets are read from the environment or a file", "Use a variable: ${var.name} and --var", path)
        for path in secrets
        if not is_secret(model, path)
    ]
    try:
        resource = model.model_validate(content, by_alias=True, by_name=False)
    except ValidationError as error:
        # What is refused for a reference already, is not refused again for the text the reference is.
        said = {complaint.at for complaint in complaints}
        complaints += [each for each in complaints_of(error, model, content) if each.at not in said]
        return None, complaints
    return (None if complaints else resource), complaints


def header_complaints(content: Any) -> Iterator[Complaint]:
    """Yield what is wrong with `apiVersion` and `kind`, without which nothing else can be judged."""
    if type(content) is not dict:
        yield Complaint(f"a manifest is a mapping, found {kind_of_value(content)}", _SHAPE)
        return
    if content.get("apiVersion") != API_VERSION:
        yield _about_version(content)
    kind = content.get("kind")
    if kind is None:
        yield Complaint("is required", f"Write one of {', '.join(WRITABLE)}", ("kind",))
    elif not isinstance(kind, str) or kind not in WRITABLE:
        yield _about_kind(kind)


def _about_version(content: dict[str, Any]) -> Complaint:
    at = ("apiVersion",)
    if content.get("apiVersion") is None:
        return Complaint("is required", f"Add `apiVersion: {API_VERSION}`. {_SHAPE}", at)
    found = kind_of_value(content["apiVersion"])
    return Complaint(f"is {found}, and this version reads {API_VERSION}", f"Write `apiVersion: {API_VERSION}`", at)


def _about_kind(kind: Any) -> Complaint:
    if kind == "MirrorTopic":
        hint = "Write an entry in the mirrorTopics of its MirrorLink"
        return Complaint("a MirrorTopic is derived from its link and no manifest of its own", hint, ("kind",))
    hint = did_you_mean(str(kind), WRITABLE, otherwise=f"Write one of {', '.join(WRITABLE)}")
    return Complaint(f"is {kind_of_value(kind)}, which is not a kind", hint, ("kind",))


def null_complaints(content: Any, path: Path = ()) -> Iterator[Complaint]:
    """Yield every key without a value and every empty entry of a list."""
    match content:
        case None:
            yield Complaint("has no value", "Give it one, or leave it out", path)
        case dict():
            for key, value in content.items():
                yield from null_complaints(value, (*path, key))
        case list():
            for index, value in enumerate(content):
                yield from null_complaints(value, (*path, index))
        case _:
            pass
