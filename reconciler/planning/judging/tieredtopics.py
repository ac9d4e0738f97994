"""Tiered topics where one switch says so (KIP-405): what brokers would refuse, told before they are asked.

Judged are effective values: what a topic says and will say, over the brokers' defaults (F-K-071).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.planning.fields import CONFIGS
from reconciler.planning.finding import Finding
from reconciler.planning.judging.limits import beyond
from reconciler.planning.wanted.acting import ActingConfigs
from reconciler.resources.address import Address
from reconciler.resources.kip405 import DELETE_ON_DISABLE, ENABLE, RULED, broken, without_effect
from reconciler.resources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from reconciler.planning.review import Review
    from reconciler.planning.situation import Situation, Wanted
    from reconciler.resources.capabilities import Capabilities

_JUDGED: Final = RULED | {"cleanup.policy", "retention.ms", "retention.bytes"}


def check_tiered_topics(situation: Situation) -> Iterator[Finding]:
    """Yield what is wrong with the tiering of topics, each where it is said; what a tier says is told once."""
    acting, told = ActingConfigs(situation), set[tuple[str, str]]()
    right: set[Hashable] = set()
    for address, wanted, topic in _topics(situation):
        capabilities, live = situation.capabilities(topic.cluster), _live(address, situation)
        own = topic.spec.configs
        if own != live:
            own = {key: value for key, (value, _) in acting.of(topic).items()}
        likeness = topic.cluster, live.get(ENABLE), frozenset((key, own[key]) for key in _JUDGED & own.keys())
        if likeness in right:
            continue  # ten thousand topics of one policy are judged once
        if live.get(ENABLE) == "true" and ENABLE not in own:
            yield _left_to_chance(address, wanted)
            continue
        if live.get(ENABLE) == "true" and own.get(ENABLE) != "true":
            yield from _disabling(address, wanted, own, capabilities)
        problems = list(broken({**_defaults(capabilities), **own}))
        if not problems and own.get(ENABLE) == live.get(ENABLE):
            right.add(likeness)
        for keys, why, hint in problems:
            said = _by_default(keys, own, capabilities)
            is_its_own = any(key in own and CONFIGS + key not in wanted.origins for key in keys)
            if is_its_own or (topic.cluster, why) not in told:
                told.add((topic.cluster, why))
                yield Finding(
                    address, wanted.source, why + said + _from(keys, wanted), hint, _marks(address, keys, own)
                )


def warnings_of_tiered_topics(review: Review) -> Iterator[Finding]:
    """Yield configs that brokers take and do nothing with, because the topic is not tiered."""
    situation = review.situation
    for address, wanted, topic in _topics(situation):
        known = situation.capabilities(topic.cluster).configs
        idle = [
            key for key in without_effect(topic.spec.configs) if key in known and CONFIGS + key not in wanted.origins
        ]
        if idle and _live(address, situation).get(ENABLE) != "true":
            yield Finding(
                address,
                wanted.source,
                f"{', '.join(idle)}: no effect, for {ENABLE} is not true",
                f"Set {ENABLE}: true, or remove what does nothing.",
                _marks(address, tuple(idle), topic.spec.configs),
            )


def _topics(situation: Situation) -> Iterator[tuple[Address, Wanted, Topic]]:
    """Yield the wanted topics that say anything of tiering, or did, on clusters that say it by one switch."""
    clusters = {
        name
        for name in situation.trusted
        if (limits := situation.capabilities(name)).tiering and limits.tiering_words == "kip-405"
    }
    if not clusters:
        return
    for address in sorted(situation.wanted):
        wanted = situation.wanted[address]
        topic = wanted.resource
        if not isinstance(topic, Topic) or topic.cluster not in clusters or not situation.is_decidable(address):
            continue
        if not (RULED.isdisjoint(topic.spec.configs) and RULED.isdisjoint(_live(address, situation))):
            yield address, wanted, topic


def _live(address: Address, situation: Situation) -> Mapping[str, str]:
    seen = situation.observed.get(address)
    return seen.resource.spec.configs if seen is not None and isinstance(seen.resource, Topic) else {}


def _defaults(capabilities: Capabilities) -> dict[str, str]:
    known = capabilities.configs
    usual = {key: default for key in _JUDGED if key in known and (default := known[key].default) is not None}
    return {**usual, **{key: value for key, value in capabilities.defaults.items() if key in _JUDGED}}


def _disabling(
    address: Address, wanted: Wanted, own: Mapping[str, str], capabilities: Capabilities
) -> Iterator[Finding]:
    """Yield why tiering cannot be switched off: not at all before KIP-950, and not in silence."""
    if not capabilities.untiering:
        yield Finding(address, wanted.source, *beyond(capabilities, "switch the tiering of a topic off", "untiering"))
    elif own.get(DELETE_ON_DISABLE) != "true":
        yield Finding(
            address,
            wanted.source,
            f"{ENABLE} would become false, which deletes what lies in object storage alone, and nothing says so",
            f"To delete it set {DELETE_ON_DISABLE}: true with it; to keep it leave {ENABLE}: true and set "
            "remote.log.copy.disable: true, local.retention.ms: total, local.retention.bytes: total.",
            _marks(address, (ENABLE,), own),
        )


def _left_to_chance(address: Address, wanted: Wanted) -> Finding:
    return Finding(
        address,
        wanted.source,
        f"its tiered storage would be left to chance: nothing names {ENABLE} any more, and it is on",
        "Switch it off first: keep the policy with remoteWrite: false for one apply, and onDisable as you want it.",
    )


def _by_default(keys: tuple[str, ...], own: Mapping[str, str], capabilities: Capabilities) -> str:
    """Say which of the values nobody wrote."""
    unwritten = [key for key in keys if key not in own and (key in capabilities.defaults or key in _JUDGED)]
    return f" ({', '.join(unwritten)} by the brokers' defaults)" if unwritten else ""


def _from(keys: tuple[str, ...], wanted: Wanted) -> str:
    origins = {origin: None for key in keys if (origin := wanted.origins.get(CONFIGS + key))}
    return f" (of {', '.join(origins)})" if origins else ""


def _marks(
    address: Address, keys: tuple[str, ...], own: Mapping[str, str]
) -> tuple[tuple[Address, tuple[str | int, ...]], ...]:
    return tuple((address, ("spec", "configs", key)) for key in keys if key in own)
