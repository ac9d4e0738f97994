"""What came of asking something of several mirrors: each stands for itself (F-C-081)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import PartialError, ReconcilerError, UserError

if TYPE_CHECKING:
    from reconciler.lifecycles.mirror import MirrorStatus
    from reconciler.workflow.linking.commands.naming import Named
    from reconciler.workflow.linking.commands.readying import Ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of asking one mirror; without an error it is done."""

    named: Named
    before: MirrorStatus | None = None
    after: MirrorStatus | None = None
    error: ReconcilerError | None = None
    ready: Ready | None = None


@dataclass(frozen=True, slots=True)
class Answers:
    """What came of asking mirrors, in the order in which they were named."""

    verb: str
    each: tuple[Answer, ...]

    @property
    def verdict(self) -> ReconcilerError | None:
        """The error to end with, where not all of it was done."""
        failed = [answer.error for answer in self.each if answer.error is not None]
        if not failed or len(self.each) == 1:
            return failed[0] if failed else None
        message = f"{self.verb}: {len(failed)} of {len(self.each)} mirrors were refused or failed"
        hint = "Above stands why, for each of them. The others are done."
        if len(failed) == len(self.each):
            return UserError(message, hint="Above stands why, for each of them.")
        return PartialError(message, hint=hint)
