"""The JSON Schema of everything the tool prints, from the models that print it, beside those of the manifests."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import orjson

from reconciler.cli.documents.asked import MirrorAnswersDocument
from reconciler.cli.documents.checked import CheckDocument
from reconciler.cli.documents.checks import DriftDocument, ValidateDocument
from reconciler.cli.documents.clusters import NamespacesDocument, TopicDocument, TopicsDocument
from reconciler.cli.documents.events import EventDocument
from reconciler.cli.documents.exports import ExportDocument
from reconciler.cli.documents.graphs import GraphDocument
from reconciler.cli.documents.groups import (
    GroupDeletionDocument,
    GroupDocument,
    GroupResetDocument,
    GroupsDocument,
)
from reconciler.cli.documents.imports import ImportDocument
from reconciler.cli.documents.inventory import ExplainDocument, ShowDocument
from reconciler.cli.documents.logs import PipelineDocument, VerifyDocument
from reconciler.cli.documents.metrics import MetricsDocument
from reconciler.cli.documents.mirrors import MirrorDescriptionDocument, MirrorErrorsDocument, MirrorsDocument
from reconciler.cli.documents.mounts import (
    MigrationDocument,
    MountReleaseDocument,
    MountsDocument,
    MountStatusDocument,
)
from reconciler.cli.documents.namespaces import (
    NamespaceCreationDocument,
    NamespaceDeletionDocument,
    TopicMovesDocument,
)
from reconciler.cli.documents.sarif import SarifDocument
from reconciler.cli.documents.states import (
    StateDiffDocument,
    StateHistoryDocument,
    StateListDocument,
    StateMovesDocument,
    StateRemovalDocument,
    StateRepairDocument,
    StateShowDocument,
    StateUnlockDocument,
)
from reconciler.cli.documents.storages import StorageDocument, StoragesDocument
from reconciler.manifests.jsonschema import DIALECT, schemas
from reconciler.planning.document.documents import PlanDocument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

OUTPUTS: Final[Mapping[str, type[BaseModel]]] = {
    "check": CheckDocument,
    "drift": DriftDocument,
    "event": EventDocument,
    "explain": ExplainDocument,
    "export": ExportDocument,
    "graph": GraphDocument,
    "group-deletion": GroupDeletionDocument,
    "group-description": GroupDocument,
    "group-reset": GroupResetDocument,
    "groups": GroupsDocument,
    "import": ImportDocument,
    "metrics": MetricsDocument,
    "migration": MigrationDocument,
    "mirror-answers": MirrorAnswersDocument,
    "mirror-description": MirrorDescriptionDocument,
    "mirror-errors": MirrorErrorsDocument,
    "mirrors": MirrorsDocument,
    "mount-release": MountReleaseDocument,
    "mount-status": MountStatusDocument,
    "mounts": MountsDocument,
    "namespace-creation": NamespaceCreationDocument,
    "namespace-deletion": NamespaceDeletionDocument,
    "namespaces": NamespacesDocument,
    "pipeline": PipelineDocument,
    "plan": PlanDocument,
    "sarif": SarifDocument,
    "show": ShowDocument,
    "state-diff": StateDiffDocument,
    "state-history": StateHistoryDocument,
    "state-list": StateListDocument,
    "state-moves": StateMovesDocument,
    "state-removal": StateRemovalDocument,
    "state-repair": StateRepairDocument,
    "state-show": StateShowDocument,
    "state-unlock": StateUnlockDocument,
    "storage": StorageDocument,
    "storages": StoragesDocument,
    "topic-description": TopicDocument,
    "topic-moves": TopicMovesDocument,
    "topics": TopicsDocument,
    "validate": ValidateDocument,
    "verify": VerifyDocument,
}


@cache
def schema_bytes() -> Mapping[str, bytes]:
    """Return every schema by its name, as it stands in `schemas/`."""
    outputs = {name: _of(model) for name, model in OUTPUTS.items()}
    return {
        name: orjson.dumps(schema, option=orjson.OPT_INDENT_2) + b"\n"
        for name, schema in sorted({**schemas(), **outputs}.items())
    }


def _of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of what a model prints: what is absent is printed as null, so every field is required."""
    return {"$schema": DIALECT, **model.model_json_schema(mode="serialization")}
