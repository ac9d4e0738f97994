"""What a saved plan keeps of how it was made, so that `apply FILE` can make it again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.workflow.invocation import Select

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.planning.document.saved import PlanDocument


def to_options(select: Select, *, cwd: Path, folder: Path) -> dict[str, Any]:
    """Return what was typed, as JSON; files relative to the workspace, so that it means the same elsewhere."""
    kept = {
        "environment": select.environment,
        "var": list(select.variables),
        "var_file": [_relative(cwd / path, folder) for path in select.var_files],
        "target": list(select.targets),
        "exclude": list(select.excludes),
        "label": list(select.labels),
        "changed_since": select.changed_since,
        "allow": list(select.allow),
    }
    return {name: value for name, value in kept.items() if value}


def options_of(document: PlanDocument, folder: Path) -> Select:
    """Return what was typed when a plan was saved."""
    kept: Mapping[str, Any] = document.options or {}
    return Select(
        environment=kept.get("environment"),
        variables=tuple(kept.get("var", ())),
        var_files=tuple(folder / path for path in kept.get("var_file", ())),
        targets=tuple(kept.get("target", ())),
        excludes=tuple(kept.get("exclude", ())),
        labels=tuple(kept.get("label", ())),
        changed_since=kept.get("changed_since"),
        allow=tuple(kept.get("allow", ())),
    )


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()
