"""The scrub of a pass: once a day of each tiered partition, spread over the day, or at once where it is named.

With a partition goes the description of its topic, which recovery cannot do without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from reconciler.embedded.producing.admission import rules_of
from reconciler.embedded.remote.storagefile import check_storage
from reconciler.embedded.remote.tidying.scrubbing import Scrub
from reconciler.embedded.threads import side_by_side
from reconciler.embedded.upkeep.describing import describe_anew
from reconciler.embedded.upkeep.surveying import Survey
from reconciler.embedded.upkeep.tended import Tended
from reconciler.errors import ReconcilerError
from reconciler.resources.clusterproperties import ENABLED, property_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.remote.tidying.scrubbing import ScrubFinding
    from reconciler.embedded.remote.tier import RemoteTier
    from reconciler.embedded.upkeep.cleanup import CleanupPolicy
    from reconciler.embedded.upkeep.passes import Upkeep
    from reconciler.embedded.upkeep.surveying import Lying

EVERY_MS: Final = 24 * 60 * 60 * 1000
"""Object storage loses next to nothing: more often, listing it would cost more than it tells."""


def scrub(upkeep: Upkeep, *, is_named: bool = False) -> Tended:
    """Hold the manifests that are due against their objects, and look at their topics' descriptions.

    `is_named`: at all of them.

    What could not be mended is an error of its partition; `records` and `bytes` are of what was put again.
    """
    tended, catalog = Tended(), upkeep.catalog.read()
    remote = upkeep.remote
    if remote is None or property_of(remote.properties, ENABLED) != "true":
        return tended
    check_storage(remote.storage, catalog.cluster.storage_id)
    with upkeep.tidying.turn("scrub", remote.properties) as may_tidy:
        _Scrubs(upkeep, remote, catalog, tended).over(may_tidy, is_named=is_named)
    return tended


class _Scrubs:
    """The scrub of one pass."""

    def __init__(self, upkeep: Upkeep, remote: RemoteTier, catalog: Catalog, tended: Tended) -> None:
        self._upkeep = upkeep
        self._remote = remote
        self._catalog = catalog
        self._tended = tended

    def over(self, may_tidy: Callable[[], bool], *, is_named: bool) -> None:
        upkeep, now_ms = self._upkeep, self._upkeep.now_ms()
        survey = Survey.begun(upkeep.store, upkeep.cluster_id, "scrub")
        done_ms: dict[str, int] = dict(survey.notes.get("done_ms", {}))
        if is_named:
            survey.rows.clear()
        due = list(survey.due(self._catalog, upkeep.heads, self._asks, now_ms=now_ms))

        def scrubbed(lying: Lying) -> list[ScrubFinding] | None:
            next_ms = done_ms.setdefault(lying.key, now_ms - _phase_ms(lying.key)) + EVERY_MS
            if next_ms > now_ms and not is_named:
                survey.remember(lying, next_ms)
                return None
            if upkeep.is_stopped() or not may_tidy():
                return None
            return self._of(lying)

        topics = {name for name in self._catalog.topics if is_named and upkeep.is_wanted(name)}
        for lying, findings in zip(due, side_by_side(scrubbed, due, name="scrub"), strict=True):
            if findings is not None:
                topics.add(lying.partition.full_name)
                done_ms[lying.key] = now_ms
                survey.remember(lying, now_ms + EVERY_MS)
                self._count(lying, findings)
        survey.notes["done_ms"] = {key: at_ms for key, at_ms in done_ms.items() if at_ms > now_ms - 2 * EVERY_MS}
        survey.end()
        self._describe(sorted(topics))

    def _describe(self, full_names: list[str]) -> None:
        now = self._upkeep.catalog.read()  # Of a topic that was deleted meanwhile nothing is made again.

        def described(full_name: str) -> ReconcilerError | None:
            try:
                if full_name in now.topics:
                    describe_anew(self._remote, now, full_name)
            except ReconcilerError as error:
                return error
            return None

        for full_name, error in zip(full_names, side_by_side(described, full_names, name="describe"), strict=True):
            if error is not None:
                self._tended.fail(full_name, error)

    def _asks(self, full_name: str, policy: CleanupPolicy) -> bool:
        return policy.tiering is not None and self._upkeep.is_wanted(full_name)

    def _of(self, lying: Lying) -> list[ScrubFinding] | None:
        """Return what was found; `None`: it could not be looked at."""
        tiering, partition = lying.policy.tiering, lying.partition
        try:
            head = self._upkeep.heads.read(self._upkeep.store, lying)
            if head is None or tiering is None:
                return []
            rules = rules_of(self._catalog, partition.full_name)
            scrub = Scrub(self._upkeep.store, self._remote, tiering, rules, partition.number, self._upkeep.now_ms)
            return scrub.done(head)
        except ReconcilerError as error:
            self._tended.fail(partition, error)
            return None

    def _count(self, lying: Lying, findings: list[ScrubFinding]) -> None:
        for finding in findings:
            if not finding.is_mended:
                self._tended.fail(lying.partition, finding.error)
        mended = [finding for finding in findings if finding.is_mended]
        self._tended.count(
            records=sum(finding.records for finding in mended), stored=sum(finding.bytes for finding in mended)
        )


def _phase_ms(key: str) -> int:
    """Return by how much the first scrub of a partition comes before a day has passed: they spread over the day."""
    return crc32(key.encode()) % EVERY_MS
