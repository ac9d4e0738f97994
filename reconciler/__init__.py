"""Public names of plan and apply for scripts and notebooks. All other names are private and may change."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from reconciler.version import __home__, __site__, __version__

if TYPE_CHECKING:
    from reconciler.embedded.catalog.model import AclEntry
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.errors import *
    from reconciler.jobs.session import check_java
    from reconciler.jobs.source import register
    from reconciler.objectstore.directory import DirectoryStore
    from reconciler.objectstore.memory import MemoryStore
    from reconciler.objectstore.open import open_store
    from reconciler.objectstore.settings import StoreSettings
    from reconciler.operations.drift import DriftItem
    from reconciler.records.log import OffsetRange
    from reconciler.resources.groups import ToEarliest
    from reconciler.workspace import ApplyResult, Workspace, WorkspacePlan, register_topics

__all__ = [
    "AclEntry",
    "ApplyResult",
    "BlockedError",
    "BrokenInvariantError",
    "DamagedObjectError",
    "DirectoryStore",
    "DriftError",
    "DriftItem",
    "EmbeddedCluster",
    "IncompleteError",
    "InterruptedRunError",
    "InvalidNamespaceError",
    "LeaseError",
    "LostRaceError",
    "MemoryStore",
    "MendFirstError",
    "MissingObjectError",
    "MissingRecordsError",
    "MissingSparkError",
    "NewerFormatError",
    "NotAuthorizedError",
    "NotFoundError",
    "OffsetRange",
    "OutOfOrderSequenceError",
    "OwnershipLostError",
    "PartialError",
    "PendingError",
    "ProducerFencedError",
    "QuotaExceededError",
    "ReconcilerError",
    "RetryableError",
    "SourceChangedError",
    "StalePlanError",
    "StoppedError",
    "StoreRefusedError",
    "StoreSettings",
    "ToEarliest",
    "UnansweredError",
    "UsageError",
    "UserError",
    "Workspace",
    "WorkspacePlan",
    "__home__",
    "__site__",
    "__version__",
    "check_java",
    "open_store",
    "register",
    "register_topics",
]

_HOMES: Final = {
    "ApplyResult": "reconciler.workspace",
    "Workspace": "reconciler.workspace",
    "WorkspacePlan": "reconciler.workspace",
    "register_topics": "reconciler.workspace",
    "DriftItem": "reconciler.operations.drift",
    "EmbeddedCluster": "reconciler.embedded.cluster",
    "AclEntry": "reconciler.embedded.catalog.model",
    "ToEarliest": "reconciler.resources.groups",
    "OffsetRange": "reconciler.records.log",
    "DirectoryStore": "reconciler.objectstore.directory",
    "MemoryStore": "reconciler.objectstore.memory",
    "StoreSettings": "reconciler.objectstore.settings",
    "open_store": "reconciler.objectstore.open",
    "check_java": "reconciler.jobs.session",
    "register": "reconciler.jobs.source",
}
"""Name → its module; other names are in `reconciler.errors`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "reconciler.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
