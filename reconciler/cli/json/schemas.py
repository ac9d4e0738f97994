"""The JSON Schema of everything the tool prints."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import orjson

from reconciler.cli.json.checks_json import (
    CheckDocument,
    CommentDocument,
    DriftDocument,
    ErrorDocument,
    ValidateDocument,
)
from reconciler.cli.json.clusters_json import (
    GroupDeletionDocument,
    GroupDocument,
    GroupResetDocument,
    GroupsDocument,
    NamespacesDocument,
    StorageDocument,
    StoragesDocument,
    TopicDocument,
    TopicProfileDocument,
    TopicsDocument,
)
from reconciler.cli.json.exports_json import ExportDocument, ImportDocument
from reconciler.cli.json.inventory_json import ExplainDocument, GraphDocument, ShowDocument
from reconciler.cli.json.mirrors_json import (
    LinkDescriptionDocument,
    LinksDocument,
    MirrorDescriptionDocument,
    MirrorErrorsDocument,
    MirrorsDocument,
)
from reconciler.cli.json.mounts_json import (
    MigrationDocument,
    MountReleaseDocument,
    MountsDocument,
    MountStatusDocument,
)
from reconciler.cli.json.runs_json import (
    EventDocument,
    LinkVerificationDocument,
    MetricsDocument,
    PipelineDocument,
    VerifyDocument,
)
from reconciler.cli.json.sarif import SarifDocument
from reconciler.cli.json.states_json import (
    StateDiffDocument,
    StateHistoryDocument,
    StateListDocument,
    StateMovesDocument,
    StateRemovalDocument,
    StateRepairDocument,
    StateShowDocument,
    StateUnlockDocument,
)
from reconciler.manifests.json_schema import identity, schemas
from reconciler.planning.saved_plan import PlanDocument

if TYPE_CHECKING:
    from pydantic import BaseModel


OUTPUTS: Final[Mapping[str, type[BaseModel]]] = {
    "check": CheckDocument,
    "comment": CommentDocument,
    "drift": DriftDocument,
    "error": ErrorDocument,
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
    "link-description": LinkDescriptionDocument,
    "link-verification": LinkVerificationDocument,
    "links": LinksDocument,
    "mirror-description": MirrorDescriptionDocument,
    "mirror-errors": MirrorErrorsDocument,
    "mirrors": MirrorsDocument,
    "mount-release": MountReleaseDocument,
    "mount-status": MountStatusDocument,
    "mounts": MountsDocument,
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
    "topic-profile": TopicProfileDocument,
    "topics": TopicsDocument,
    "validate": ValidateDocument,
    "verify": VerifyDocument,
}


@cache
def schema_bytes() -> Mapping[str, bytes]:
    """Return every schema by its name, as it stands in `schemas/`."""
    outputs = {name: _of(name, model) for name, model in OUTPUTS.items()}
    return {
        name: orjson.dumps(schema, option=orjson.OPT_INDENT_2) + b"\n"
        for name, schema in sorted({**schemas(), **outputs}.items())
    }


def _of(name: str, model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of what a model prints: what is absent is printed as null, so every field is required."""
    return {**identity(name), **model.model_json_schema(mode="serialization")}
