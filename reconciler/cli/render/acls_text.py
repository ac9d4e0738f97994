"""Access rules as text, in the order in which they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.render.lines import EMPTY, Line
from reconciler.cli.render.tables import table
from reconciler.cli.render.values import value_text
from reconciler.resources.aclpaths import ACLS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.workflow.looking.actingacls import AclRow


def acls_lines(rows: Sequence[AclRow]) -> list[Line]:
    """Return a table of access rules with what they lie on; nothing where there are none."""
    cells = [
        (row.path.removeprefix(ACLS), value_text(row.path, tuple(row.rule.operations)), row.origin) for row in rows
    ]
    return [EMPTY, *table(("access rule", "operations", "comes from"), cells)] if cells else []
