"""What of tiering cannot be, whatever the platform: nowhere to upload to, limits that contradict each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.planning.fields import CONFIGS
from reconciler.planning.finding import Finding, Mark
from reconciler.planning.wanted.acting import ActingConfigs
from reconciler.resources.address import Address, cluster_address
from reconciler.resources.clusterproperties import ENABLED
from reconciler.resources.configs import show_value
from reconciler.resources.namespace import Namespace
from reconciler.resources.tieringconfigs import EMBEDDED_CONFIGS, POLICY_KEYS, policy_path
from reconciler.resources.tierrules import CLUSTER, SWITCHES, switches_in
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from reconciler.planning.review import Review
    from reconciler.planning.situation import Situation, Wanted
    from reconciler.planning.wanted.acting import Acting
    from reconciler.resources.capabilities import Capabilities
    from reconciler.resources.inventory import Observed

_WORDS: Final = frozenset(word for words in POLICY_KEYS.values() for word in words)
_PAIRS: Final = (
    (("retention.local.target.ms", "local.retention.ms"), "retention.ms"),
    (("retention.local.target.bytes", "local.retention.bytes"), "retention.bytes"),
)
"""Local targets in either platform's words, and the total each must not be above."""
_SEGMENT: Final = "segment.bytes"


def check_tiering(situation: Situation) -> Iterator[Finding]:
    """Yield what is wrong with the tiering of topics and namespaces, each where it is said."""
    acting = ActingConfigs(situation)
    told: set[tuple[str | None, str]] = set()
    right: set[Hashable] = set()
    for address in sorted(situation.wanted):
        wanted = situation.wanted[address]
        resource = wanted.resource
        if not isinstance(resource, Topic | Namespace) or not _WORDS & resource.spec.configs.keys():
            continue
        if situation.is_decidable(address) and _is_judged(situation.capabilities(resource.cluster)):
            likeness = _likeness(resource, situation.observed.get(address))
            if likeness in right:
                continue  # ten thousand topics of one policy are judged once
            judged = _Judged(address, wanted, acting.of(resource), frozenset(resource.spec.configs), situation)
            findings = list(judged.all())
            if likeness is not None and not findings:
                right.add(likeness)
            for finding in findings:
                # What a policy gets wrong is told once, not for each of ten thousand topics that have it.
                is_policys = any(place.startswith("policy/") for place, _ in finding.marks) and not any(
                    place == address and path[:2] == ("spec", "configs") for place, path in finding.marks
                )
                said = (resource.cluster, finding.message)
                if not is_policys or said not in told:
                    told.add(said)
                    yield finding


def _is_judged(capabilities: Capabilities) -> bool:
    return capabilities.tiering and capabilities.tiering_words == "directions"


def _likeness(resource: Topic | Namespace, seen: Observed | None) -> Hashable:
    """Return what two resources share that are judged alike; `None`: this one has more than the files say."""
    if not isinstance(resource, Topic):
        return None
    initial: tuple[tuple[str, str], ...] | None = None
    if seen is not None:
        if not isinstance(seen.resource, Topic) or seen.resource.spec.configs != resource.spec.configs:
            return None
        initial = tuple(seen.initial.items())
    return resource.cluster, resource.metadata.namespace, initial, tuple(resource.spec.configs.items())


def warnings_of_tiering(review: Review) -> Iterator[Finding]:
    """Yield a warning for each cluster whose switch is off while topics ask to be tiered: nothing moves then."""
    situation = review.situation
    acting = ActingConfigs(situation)
    if not any(_is_off(cluster, situation, acting) for cluster in situation.trusted):
        return
    waiting: dict[str, list[Address]] = {}
    for address in sorted(situation.wanted):
        topic = situation.wanted[address].resource
        if not (isinstance(topic, Topic) and situation.is_decidable(address)):
            continue
        if _is_off(topic.cluster, situation, acting) and not switches_in(acting.of(topic)).is_off:
            waiting.setdefault(topic.cluster, []).append(address)
    for cluster, topics in waiting.items():
        count = "1 topic asks" if len(topics) == 1 else f"{len(topics):,} topics ask"
        yield Finding(
            cluster_address(cluster),
            situation.wanted[cluster_address(cluster)].source,
            f"{ENABLED} is false: {count} to be tiered, and nothing is uploaded or fetched: "
            "what lies in object storage alone cannot be read",
            "Remove the property where tiering is wanted.",
            ((cluster_address(cluster), ("spec", "properties", ENABLED)),),
        )


def _is_off(cluster: str, situation: Situation, acting: ActingConfigs) -> bool:
    return situation.capabilities(cluster).tiering and acting.properties(cluster).get(ENABLED) == "false"


@dataclass(frozen=True, slots=True)
class _Judged:
    """One topic or namespace: what will act there, and which of it it says itself, by configs or its policy."""

    address: Address
    wanted: Wanted
    acting: Acting
    own: frozenset[str]
    situation: Situation

    def all(self) -> Iterator[Finding]:
        """Yield everything that is wrong."""
        if self.own & SWITCHES:
            yield from self._unstored()
        for local, total in _PAIRS:
            yield from self._above_total(local, total)
        if self.own & {"retention.bytes", _SEGMENT, *SWITCHES}:
            yield from self._below_segment()

    def _unstored(self) -> Iterator[Finding]:
        switches = switches_in(self.acting)
        cluster = self.wanted.resource.cluster or ""
        declared = self.situation.clusters[cluster]
        if switches.is_off or declared.spec.object_storage is not None:
            return
        keys = [key for key in sorted(self.own & SWITCHES) if self.acting[key][0] == "true"]
        if keys:
            yield self._finding(
                f"{self._named(keys[0])} is true, and cluster {cluster} has no object storage for that",
                f"Declare objectStorage on {declared.address}, or switch it off.",
                keys[0],
            )

    def _above_total(self, words: tuple[str, ...], total: str) -> Iterator[Finding]:
        """Of two limits that both are written the cluster could only break one."""
        local = next((word for word in words if word in self.acting), None)
        if local is None or total not in self.acting or not {local, total} & self.own:
            return
        (here, here_from), (whole, whole_from) = self.acting[local], self.acting[total]
        if CLUSTER in {here_from, whole_from} or int(whole) < 0 or int(here) <= int(whole):
            return
        limits = f"{show_value(local, here)}, above {self._named(total)} of {show_value(total, whole)}"
        yield self._finding(
            f"{self._named(local)} is {limits}: nothing stays local that is not kept at all",
            "Lower the local target, or raise the total.",
            *sorted({local, total}, key=lambda key: key not in self.own),
        )

    def _below_segment(self) -> Iterator[Finding]:
        """Size retention removes whole segments and ends below its limit: not even one segment would ever be kept."""
        if "retention.bytes" not in self.acting or switches_in(self.acting).is_off:
            return
        segment = self.acting.get(_SEGMENT, (EMBEDDED_CONFIGS[_SEGMENT].default or "0", "default"))[0]
        total = self.acting["retention.bytes"][0]
        if not 0 <= int(total) < int(segment):
            return
        yield self._finding(
            f"{self._named('retention.bytes')} is {show_value('retention.bytes', total)}, less than one segment of "
            f"{show_value(_SEGMENT, segment)} ({_SEGMENT}): each would be removed as soon as it is uploaded",
            f"Raise retention.bytes, or lower {_SEGMENT}.",
            "retention.bytes",
            _SEGMENT,
        )

    def _named(self, key: str) -> str:
        """Return a config as a message names it, with where it is from, unless it is the document's own."""
        origin = self.acting[key][1] if key in self.acting else str(self.address)
        return key if origin == self.address else f"{key} (of {origin})"

    def _finding(self, message: str, hint: str, *keys: str) -> Finding:
        marks = tuple(mark for key in keys for mark in self._marks(key))
        return Finding(self.address, self.wanted.source, message, hint, marks)

    def _marks(self, key: str) -> Iterator[Mark]:
        origin = self.wanted.origins.get(CONFIGS + key) or self.acting.get(key, ("", ""))[1]
        path = policy_path(key)
        if origin.startswith("policy/") and path is not None:
            if key in self.own:
                yield self.address, ("spec", "tieringPolicy")
            yield Address(origin), path
        elif key in self.own or origin in self.situation.wanted:
            yield self.address if key in self.own else Address(origin), ("spec", "configs", key)
