"""JSON of the commands that ask something of mirrors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from reconciler.cli.documents.base import Document, Part
from reconciler.cli.documents.mirrors import MirrorLagPart
from reconciler.lifecycles.mirror import MirrorStatus

if TYPE_CHECKING:
    from reconciler.workflow.linking.commands.answers import Answer, Answers
    from reconciler.workflow.linking.commands.readying import Cut


class TruncatedPart(Part):
    """One partition that a restore cuts."""

    partition_id: int
    offset_truncated_to: int
    messages_truncated: int = Field(description="Offsets from there on, which are lost.")

    @classmethod
    def of(cls, cut: Cut) -> TruncatedPart:
        """Say where, and how much."""
        return cls(partition_id=cut.partition, offset_truncated_to=cut.offset, messages_truncated=cut.lost)


class MirrorAnswerPart(Part):
    """What came of one mirror."""

    address: str
    before: MirrorStatus | None = Field(description="Null: it was not there, or not looked at.")
    after: MirrorStatus | None = Field(description="Null: it is not known.")
    error_message: str | None = Field(description="Null: it is done.")
    hint: str | None
    mirror_lags: tuple[MirrorLagPart, ...] = Field(description="As they were when it was asked.")
    partition_level_truncation_data: tuple[TruncatedPart, ...]

    @classmethod
    def of(cls, answer: Answer) -> MirrorAnswerPart:
        """Say all of it."""
        ready, error = answer.ready, answer.error
        return cls(
            address=answer.named.address,
            before=answer.before,
            after=answer.after,
            error_message=None if error is None else error.message,
            hint=None if error is None else error.hint,
            mirror_lags=() if ready is None else tuple(map(MirrorLagPart.of, ready.lags)),
            partition_level_truncation_data=() if ready is None else tuple(map(TruncatedPart.of, ready.cuts)),
        )


class MirrorAnswersDocument(Document):
    """What came of asking a verb of mirrors, in the order in which they were named."""

    format: Literal["reconciler.mirror-answers/1"] = "reconciler.mirror-answers/1"
    verb: str
    mirrors: tuple[MirrorAnswerPart, ...]

    @classmethod
    def of(cls, answers: Answers) -> MirrorAnswersDocument:
        """Say everything."""
        return cls(verb=answers.verb, mirrors=tuple(map(MirrorAnswerPart.of, answers.each)))
