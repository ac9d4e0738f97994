"""The JSON Schema of everything the tool prints, from the models that print it, beside those of the manifests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from reconciler.cli.documents.checks import DriftDocument, ValidateDocument
from reconciler.cli.documents.clusters import NamespacesDocument, TopicDocument, TopicsDocument
from reconciler.cli.documents.events import EventDocument
from reconciler.cli.documents.inventory import (
    ExplainDocument,
    ShowDocument,
    StateHistoryDocument,
    StateListDocument,
    StateShowDocument,
)
from reconciler.cli.documents.logs import PipelineDocument, VerifyDocument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

OUTPUTS: Final[Mapping[str, type[BaseModel]]] = {
    "drift": DriftDocument,
    "event": EventDocument,
    "explain": ExplainDocument,
    "namespaces": NamespacesDocument,
    "pipeline": PipelineDocument,
    "show": ShowDocument,
    "state-history": StateHistoryDocument,
    "state-list": StateListDocument,
    "state-show": StateShowDocument,
    "topic-description": TopicDocument,
    "topics": TopicsDocument,
    "validate": ValidateDocument,
    "verify": VerifyDocument,
}


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of what a model prints: absent values are printed as null, so every field is required."""
    return {"$schema": DIALECT, **model.model_json_schema(mode="serialization")}
