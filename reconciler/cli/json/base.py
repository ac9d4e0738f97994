"""The base of every JSON output."""

from __future__ import annotations

import orjson
from pydantic import BaseModel, ConfigDict

from reconciler.runtime.text import json_shown


class Part(BaseModel):
    """A piece of a document."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, json_schema_serialization_defaults_required=True
    )


class Document(Part):
    """A whole output; `format` names it and its version."""


def document_bytes(document: Document) -> bytes:
    """Return a document as people and programs read it: the same bytes for the same content."""
    return json_shown(orjson.dumps(document.model_dump(mode="json"), option=orjson.OPT_INDENT_2)) + b"\n"


def document_line(document: Document) -> bytes:
    """Return a document as one line, where several follow each other."""
    return json_shown(orjson.dumps(document.model_dump(mode="json"))) + b"\n"
