"""What a saved plan keeps of how it was made, so that `apply FILE` can make it again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import UserError
from reconciler.planning.document.reading import AGAIN, read_saved
from reconciler.workflow.beginning.invocation import Select

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.planning.document.documents import PlanDocument

_LARGEST_BYTES: Final = 1 << 30
"""A plan of half a million topics; what is larger is something else."""
_FIRST_BYTES: Final = 4096


def read_approved(path: Path, shown: str) -> PlanDocument:
    """Return a plan that `--out` saved; what is wrong with it is said with the name it was given by.

    Raises:
        UserError: It cannot be read, is no saved plan, of another format, or was changed after it was written.
    """
    try:
        return read_saved(read_plan_file(path))
    except UserError as error:
        if shown not in error.message:
            error.message = f"{shown}: {error.message}"
        raise


def read_plan_file(path: Path) -> bytes:
    """Return the bytes of what may be a saved plan; of what begins otherwise no more than its first ones.

    Raises:
        UserError: It cannot be read, or is too large to be one.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > _LARGEST_BYTES:
                raise UserError(f"not a saved plan: {path} is larger than one can be", hint=AGAIN)
            first = file.read(_FIRST_BYTES)
            return first + file.read(_LARGEST_BYTES) if first.lstrip()[:1] == b"{" else first
    except OSError as error:
        raise UserError(f"cannot read the plan {path}: {error.strerror or error}", hint=AGAIN) from error


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
    return select_of(document.options or {}, folder)


def select_of(kept: Mapping[str, Any], folder: Path) -> Select:
    """Return what was typed, from what was kept of it."""
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
