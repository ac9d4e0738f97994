"""A detached topic taken by a cluster whose jobs copy its records: claimed first, and its own once all are there.

It is the register that keeps two clusters from taking one topic, whatever their platforms; the objects stay where they
are, in the name of who has taken it, until that cluster detaches the topic again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.embedded.mounting.claims import check_owned, claim_topic, settle_topic, unclaim_topic
from reconciler.embedded.mounting.handing import Handing
from reconciler.embedded.mounting.ownership import Ownership, Owning, check_hands, read_ownership
from reconciler.embedded.remote.manifests.topicmanifest import TopicManifest, hand_over
from reconciler.embedded.remote.recovery.locating import located
from reconciler.embedded.remote.recovery.wholeness import whole_partitions_of

if TYPE_CHECKING:
    from reconciler.embedded.archiving.archive import Archive
    from reconciler.embedded.remote.manifests.manifest import Manifest


def claim(archive: Archive, name: str, mark: str, *, now_ms: int) -> TopicManifest:
    """Claim a detached topic for the archive's owner, where it is called `name`; return it, whole. May be repeated.

    Raises:
        OwnershipLostError: Another cluster has it, or another attempt.
        UserError: There is none, or something that it names is lost.
    """
    topic = located(archive.storage, archive.location)
    wanted = Ownership(topic.location, Owning.CLAIMED, archive.owner, mark, name, at_ms=now_ms)
    claim_topic(archive.storage, topic.location, wanted)
    whole_partitions_of(archive.storage, topic)
    return topic


def check_claimed(archive: Archive, mark: str) -> None:
    """Refuse to go on with what was claimed, and released or taken since.

    Raises:
        OwnershipLostError: It was.
    """
    place = archive.location
    check_owned(place, read_ownership(archive.storage, place), archive.owner, mark)


def settle(archive: Archive, name: str, mark: str, *, now_ms: int) -> None:
    """Say that a claimed topic is its owner's: all its records are there. May be repeated.

    Raises:
        OwnershipLostError: The claim was taken away.
    """
    place, storage = archive.location, archive.storage
    settle_topic(storage, place, archive.owner, mark, now_ms)

    def ours(found: Manifest) -> Manifest | None:
        check_hands("a manifest of the topic", found.owner, archive.owner)
        if found.owner == archive.owner:
            return None
        return replace(found, owner=archive.owner, owner_epoch=found.owner_epoch + 1)

    topic = located(storage, place)
    Handing(storage, place, lambda: check_claimed(archive, mark))(range(topic.partitions), ours)

    def told(found: TopicManifest | None) -> TopicManifest | None:
        check_claimed(archive, mark)
        if found is None:
            return None
        check_hands(f"topic {place}", found.owner, archive.owner)
        after = replace(found, owner=archive.owner, name=name, serial=0)
        return None if after == found else after

    hand_over(storage, place, told, f"settle-{mark}")


def give_back(archive: Archive, mark: str, *, now_ms: int) -> None:
    """Let go of a claim that came to nothing; what is somebody else's stays so."""
    unclaim_topic(archive.storage, archive.location, archive.owner, mark, now_ms)
