"""Configs that nobody declares and that hide declared ones: set on a topic by hand, above what its tiers say.

A key we never set is left alone, so this is told and not mended; silence would let the files say one thing and the
cluster do another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.planning.finding import Finding
from reconciler.planning.plan import Override
from reconciler.resources.address import rank
from reconciler.resources.configs import DEFAULT, show_value
from reconciler.resources.namespace import Namespace
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.planning.review import Review
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address


def overrides(situation: Situation) -> tuple[Override, ...]:
    """Return what hides a declared value on the topics that are ours; only platforms that inherit know such keys."""
    if situation.given.is_destroy:
        return ()
    found: list[Override] = []
    tiers = _Tiers(situation)
    for address, item in situation.wanted.items():
        topic, seen = item.resource, situation.observed.get(address)
        if not isinstance(topic, Topic) or seen is None or not isinstance(live := seen.resource, Topic):
            continue
        if live.spec.configs != topic.spec.configs and situation.is_decidable(address):
            last = situation.recorded.get(address)
            ours = last.resource.spec.configs if last and isinstance(last.resource, Topic) else {}
            named = {*topic.spec.configs, *ours, *(path.removeprefix("configs.") for path in item.origins)}
            strange = {key: value for key, value in live.spec.configs.items() if key not in named}
            found += tiers.hidden(topic, address, strange)
    return tuple(sorted(found, key=lambda one: (rank(one.address), one.path)))


def warnings_of_overrides(review: Review) -> Iterator[Finding]:
    """Yield each as a warning that says what to do."""
    for one in review.overrides:
        key = one.path.removeprefix("configs.")
        shown, hidden = show_value(key, one.value), show_value(key, one.hidden)
        yield Finding(
            one.address,
            review.situation.wanted[one.address].source,
            f"{key} is {shown} on the cluster, set by nobody's file, and hides {hidden} of {one.origin}",
            f"Write `{key}: default` on the topic to inherit again, or declare the value.",
        )


@dataclass(frozen=True, slots=True)
class _Tiers:
    """What the tiers of a topic say."""

    situation: Situation

    def hidden(self, topic: Topic, address: Address, strange: Mapping[str, str]) -> Iterator[Override]:
        """Yield the keys of `strange` under which a tier declares another value."""
        if not strange or not self.situation.capabilities(topic.cluster).inherits_configs:
            return
        for key, value in strange.items():
            for tier in self.situation.nearest(topic.cluster, topic.metadata.namespace):
                declared = self.situation.wanted.get(tier)
                namespace = declared.resource if declared is not None else None
                said = namespace.spec.configs.get(key) if isinstance(namespace, Namespace) else None
                if said is not None:
                    if said not in {DEFAULT, value}:
                        yield Override(address, f"configs.{key}", value, said, tier)
                    break
