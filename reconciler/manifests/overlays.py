"""Overlays: what one environment says differently, merged onto the base by address."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import UsageError, UserError
from reconciler.manifests.files import OVERLAYS
from reconciler.manifests.suggestions import did_you_mean, one_of
from reconciler.resources.base import Complaint

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.manifests import positions

DELETE: Final = "$delete"
ENVIRONMENT: Final = re.compile(r"[a-z0-9-]{1,40}")


def overlay_folder(folder: Path, environment: str) -> Path:
    """Return the folder of an environment.

    Raises:
        UsageError: It cannot be a name of an environment.
        UserError: There is no such environment.
    """
    if not ENVIRONMENT.fullmatch(environment):
        raise UsageError(f"{environment!r} is not a name of an environment", hint="Up to 40 of [a-z0-9-]")
    found = folder / OVERLAYS / environment
    if not found.is_dir():
        known = environments(folder)
        hint = did_you_mean(environment, known, otherwise=f"Create {OVERLAYS}/{environment}/; known: {one_of(known)}")
        raise UserError(f"there is no environment {environment}", hint=hint)
    return found


def environments(folder: Path) -> tuple[str, ...]:
    """Return the environments of a workspace."""
    try:
        found = [child.name for child in (folder / OVERLAYS).iterdir() if child.is_dir()]
    except OSError:
        return ()
    return tuple(sorted(name for name in found if ENVIRONMENT.fullmatch(name)))


def merge(base: Any, over: dict[str, Any], complaints: list[Complaint], path: positions.Path = ()) -> Any:
    """Return `base` with `over` put onto it: mappings key by key, lists replaced whole, `null` removes a key."""
    merged = dict(base)
    for key, value in over.items():
        at = (*path, key)
        if value is None:
            if key not in merged:
                complaints.append(Complaint("removes nothing: the base has no such key", "Leave it out", at))
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value, complaints, at)
        else:
            merged[key] = value
    return merged


def is_deletion(content: dict[str, Any], complaints: list[Complaint]) -> bool:
    """Tell whether an overlay's document drops its address; then it says nothing else."""
    if DELETE not in content:
        return False
    if content[DELETE] is not True:
        complaints.append(Complaint("can only be true", f"Write `{DELETE}: true`, or leave it out", (DELETE,)))
    if "spec" in content:
        complaints.append(Complaint("is not used where the whole address is dropped", "Leave it out", ("spec",)))
    return True
