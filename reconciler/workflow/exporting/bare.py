"""A cluster that no file declares yet: reached by what was typed, and written as the workspace that declares it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from reconciler.errors import UsageError
from reconciler.manifests.sentences import complaints_of
from reconciler.resources.cluster import Cluster
from reconciler.resources.secret import SECRET_REFERENCE
from reconciler.workflow.init import workspace_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WORKSPACE: Final = "reconciler.yaml"
MANIFESTS: Final = "manifests"
_FILES: Final = frozenset({"caFile", "certFile", "keyFile"})


def bare_named(
    name: str, servers: Sequence[str], security: Sequence[str], separator: str | None, *, here: Path, out: Path
) -> Cluster | None:
    """Return the Kafka cluster that was typed; `None`: none was.

    `security` are fields of a Cluster's, `field=value`; files are named from `here`, and declared as seen from `out`.

    Raises:
        UsageError: It cannot be declared like that. A secret that is written out is one reason.
    """
    if not servers:
        if security or separator:
            hint = "Add --bootstrap-server, or say it in the manifest of the Cluster."
            raise UsageError("how a cluster is reached is said of one that nothing declares", hint=hint)
        return None
    fields = dict(_field(each, here, out) for each in security)
    connection: dict[str, object] = {"bootstrapServers": list(servers), "namespaceSeparator": separator or "."}
    if fields:
        connection["security"] = fields
    said = {"metadata": {"name": name}, "spec": {"provider": "kafka", "kafka": connection}}
    try:
        return Cluster.model_validate(said)
    except ValidationError as error:
        wrong = next(complaints_of(error, Cluster, said))
        where = ".".join(map(str, wrong.at[2:] or wrong.at[1:]))
        raise UsageError(f"{where}: {wrong.message}", hint=wrong.hint) from None  # It may hold the secret itself.


def in_workspace(texts: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return files as a workspace has them; one that is there already stays as it is."""
    below = {f"{MANIFESTS}/{name}": text for name, text in texts.items()}
    if (folder / _WORKSPACE).exists():
        return below
    named = sorted({f"{found[1]}:{found[2]}" for text in texts.values() for found in SECRET_REFERENCE.finditer(text)})
    return {_WORKSPACE: workspace_text(folder.resolve(), references=named), **below}


def _field(text: str, here: Path, out: Path) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{name!r} is no field=value", hint="For example --security protocol=SASL_SSL")
    if name in _FILES and not Path(value).is_absolute():
        value = os.path.relpath(here / value, out)
    return name, value
