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
    from collections.abc import Iterable, Iterator

    from reconciler.manifests.drafts import Draft
    from reconciler.manifests.positions import Path
    from reconciler.resources.kinds import Resource
    from reconciler.resources.workspace import Workspace

API_VERSION: Final = "reconciler/v1"

Writable: TypeAlias = "Workspace | Resource"

_SHAPE: Final = "Every document has apiVersion, kind, metadata and spec"


def read(draft: Draft) -> tuple[Writable | None, list[Complaint]]:
    """Return the resource a draft declares, or `None` and everything that is wrong with it."""
    complaints = [*draft.complaints, *(null_complaints(draft.content) if draft.has_null else ())]
    headers = list(header_complaints(draft.content))
    if headers:
        return None, _joined(complaints, headers)
    model = WRITABLE[draft.content["kind"]]
    complaints = _joined(complaints, _misplaced_secrets(draft, model))
    try:
        resource = model.model_validate(draft.content, by_alias=True, by_name=False)
    except ValidationError as error:
        found = complaints_of(error, model, draft.content)
        return None, _joined(complaints, (_traced(complaint, draft) for complaint in found))
    return (None if complaints else resource), complaints


def _joined(complaints: list[Complaint], more: Iterable[Complaint]) -> list[Complaint]:
    """Return both without saying a second thing about one field: it only follows from the first."""
    said = {complaint.at for complaint in complaints}
    return [*complaints, *(complaint for complaint in more if complaint.at not in said)]


def _misplaced_secrets(draft: Draft, model: type[Writable]) -> Iterator[Complaint]:
    for path in draft.secrets:
        if not is_secret(model, path):
            message = "only secrets are read from the environment or a file"
            yield Complaint(message, "Use a variable: ${var.name} and --var", path)


def _traced(complaint: Complaint, draft: Draft) -> Complaint:
    """Name the variable where the value is not the author's own."""
    if complaint.at in draft.variables:
        return complaint._replace(message=f"{complaint.message} ({draft.variables[complaint.at]})")
    return complaint


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
    known = WRITABLE if isinstance(kind, str) else ()
    hint = did_you_mean(str(kind), known, otherwise=f"Write one of {', '.join(WRITABLE)}")
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
