"""How long a cluster waits for its object storage: as its declared properties have it, else their defaults."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from reconciler.objectstore.settings import Patience
from reconciler.resources.clusterproperties import EMBEDDED_PROPERTIES
from reconciler.resources.configs import canonical_value

if TYPE_CHECKING:
    from collections.abc import Mapping


def patience_in(properties: Mapping[str, str]) -> Patience:
    """Return what a cluster's properties say; one that cannot be is refused when the cluster is planned, not here."""

    def value(name: str) -> int:
        with suppress(ValueError):
            if name in properties:
                return int(canonical_value(name, properties[name], EMBEDDED_PROPERTIES))
        return int(EMBEDDED_PROPERTIES[name].default or 0)

    return Patience(
        value("cloud_storage_initial_backoff_ms"),
        value("cloud_storage_segment_upload_timeout_ms"),
        value("cloud_storage_manifest_upload_timeout_ms"),
    )
