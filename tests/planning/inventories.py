"""Random worlds: what is declared, recorded and there overlap in every way, on two clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from reconciler.planning.plan import Selection
from tests.planning.casefile import EMBEDDED, Case, capable
from tests.planning.short import observed
from tests.planning.world import World

NAMESPACES = ("a", "a:b", "a:b:c", "d")
TOPICS = ("t", "a:t", "a:b:t", "a:b:c:t", "d:u")
CLUSTERS = ("west", "east")
CONFIGS = st.dictionaries(
    st.sampled_from(("retention.ms", "segment.ms", "max.message.bytes")),
    st.sampled_from(("1000", "2000", "default")),
    max_size=2,
)
LIVE_CONFIGS = st.dictionaries(
    st.sampled_from(("retention.ms", "segment.ms", "max.message.bytes")), st.sampled_from(("1000", "2000")), max_size=2
)
ACLS = st.lists(
    st.fixed_dictionaries(
        {
            "principal": st.sampled_from(("User:a", "User:b")),
            "permission": st.sampled_from(("allow", "deny")),
            "operations": st.sampled_from((["read"], ["write", "read"], ["all"])),
        }
    ),
    max_size=2,
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw a world. Clusters are known; everything on them is anybody's guess."""
    row: dict[str, Any] = {"clusters": list(CLUSTERS), "plan": []}
    homes = [{"namespace": "a:b:c", "where": cluster} for cluster in CLUSTERS if draw(st.integers(0, 3))]
    homes += [{"namespace": "d", "where": cluster} for cluster in CLUSTERS if draw(st.integers(0, 3))]
    row["desired"] = [*homes, *_namespaces(draw), *_topics(draw, CONFIGS), *_policies(draw), *_links(draw)]
    row["recorded"] = [*_namespaces(draw, LIVE_CONFIGS), *_recorded_topics(draw), *_mirrors(draw)]
    row["observed"] = [*_namespaces(draw, LIVE_CONFIGS), *_topics(draw, LIVE_CONFIGS), *_mirrors(draw, seen=True)]
    row["given"] = {
        "allow": draw(st.sampled_from(([], ["delete:*"], ["delete:topic/*", "update:*"], ["delete:*", "update:*"]))),
        "guards": {"maxDeletes": draw(st.sampled_from((0, 2, 50)))},
    }
    world = Case("drawn", row).world
    inherits = draw(st.booleans())
    limits = {**EMBEDDED, "inherits_configs": inherits, "topic_move": draw(st.booleans()), "acls": True}
    given = replace(world.given, capabilities=dict.fromkeys(CLUSTERS, capable(limits)))
    return replace(world, given=given)


def without_allowances(world: World) -> World:
    """Return the world after the command line's allowances were used."""
    return replace(world, given=replace(world.given, selection=Selection()))


def _namespaces(draw: st.DrawFn, configs: st.SearchStrategy[dict[str, str]] = CONFIGS) -> list[dict[str, Any]]:
    chosen = draw(st.sets(st.tuples(st.sampled_from(CLUSTERS), st.sampled_from(NAMESPACES)), max_size=5))
    return [
        {"namespace": name, "where": cluster, "configs": draw(configs), "acls": draw(ACLS)}
        for cluster, name in sorted(chosen)
    ]


def _topics(draw: st.DrawFn, configs: st.SearchStrategy[dict[str, str]]) -> list[dict[str, Any]]:
    chosen = draw(st.sets(st.tuples(st.sampled_from(CLUSTERS), st.sampled_from(TOPICS)), max_size=5))
    rows: list[dict[str, Any]] = []
    for cluster, name in sorted(chosen):
        # Declared ones have more partitions than any other: refusals are only one of the things to be tried.
        row: dict[str, Any] = {"topic": name, "where": cluster, "partitions": 3 if configs is CONFIGS else 2}
        row |= {"configs": draw(configs), "acls": draw(ACLS)}
        if configs is CONFIGS:
            row |= {"protect": draw(st.sampled_from((None, None, True, False)))}
            row |= {"tieringPolicy": draw(st.sampled_from((None, None, "p")))}
            row |= {"movedFrom": draw(st.sampled_from((*[None] * 12, *TOPICS)))}
            row = {key: value for key, value in row.items() if value is not None}
        rows.append(row)
    return rows


def _recorded_topics(draw: st.DrawFn) -> list[dict[str, Any]]:
    rows = _topics(draw, LIVE_CONFIGS)
    for row in rows:
        row["is"] = {
            "ownership": draw(st.sampled_from(("created", "adopted"))),
            "protect": draw(st.sampled_from((False, False, True))),
            "incarnation": draw(st.sampled_from((f"topic {row['topic']}", f"topic {row['topic']}", "another", None))),
        }
    return rows


def _policies(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [{"policy": "p", "segmentBytes": draw(st.sampled_from((1_000_000, 2_000_000)))}]


def _links(draw: st.DrawFn) -> list[dict[str, Any]]:
    if not draw(st.booleans()):
        return []
    mirrors = draw(st.sets(st.sampled_from(TOPICS), max_size=1))
    return [{"link": "l", "where": "east", "source": "west", "prefix": "m.", "mirrors": sorted(mirrors)}]


def _mirrors(draw: st.DrawFn, *, seen: bool = False) -> list[dict[str, Any]]:
    if not draw(st.booleans()):
        return []
    rows: list[dict[str, Any]] = [{"link": "l", "where": "east", "source": "west", "prefix": "m."}]
    for source in sorted(draw(st.sets(st.sampled_from(TOPICS), max_size=2))):
        namespace, _, name = source.rpartition(":")
        row: dict[str, Any] = {"mirror": f"{namespace}:m.{name}" if namespace else f"m.{name}"}
        row |= {"where": "east", "link": "l", "source": source}
        if seen:
            state = draw(st.sampled_from((*["ACTIVE"] * 6, "STOPPED", "PAUSED", "FAILED")))
            row["is"] = {"state": state, "first_copy_done": draw(st.booleans())}
        rows.append(row)
    return rows


ROLES = ("mirroring", "paused", "promoted", "failed-over", "reversed")
ROLE_STATES = (*["ACTIVE"] * 3, "STOPPED", "STOPPED", "PAUSED", "SOURCE_UNAVAILABLE", "LINK_FAILED", "FAILED")


@st.composite
def linked_worlds(draw: st.DrawFn) -> World:
    """Draw two clusters with a link that goes both ways: every role over every state, on either side."""
    halves = [{"link": "l", "where": "east", "source": "west"}, {"link": "l", "where": "west", "source": "east"}]
    halves = [{**half, "mode": "bidirectional"} for half in halves]
    names = sorted(draw(st.sets(st.sampled_from(("a", "b")), min_size=1)))
    roles = [{"source": name, "state": draw(st.sampled_from(ROLES))} for name in names if draw(st.integers(0, 4))]
    desired: list[dict[str, Any]] = [{**halves[0], "mirrors": roles}] if draw(st.integers(0, 6)) else []
    recorded: list[dict[str, Any]] = draw(st.sampled_from((halves, halves, halves[:1], [])))
    seen = [*halves] if recorded else draw(st.sampled_from(([], halves)))
    rows: dict[str, list[dict[str, Any]]] = {"desired": desired, "recorded": [*recorded], "observed": seen}
    for name in names:
        _draw_pair(draw, name, rows)
    row = {"clusters": list(CLUSTERS), "has_links": True, "plan": [], **rows}
    row["given"] = {"allow": draw(st.sampled_from(([], ["*"]))), "guards": {"maxDeletes": 50}}
    return Case("drawn", row).world


def _draw_pair(draw: st.DrawFn, name: str, rows: dict[str, list[dict[str, Any]]]) -> None:
    """Draw what there is of a topic on both clusters, and what is declared and known of it."""
    here, there = draw(st.permutations(CLUSTERS)) if rows["observed"] else ("east", "west")
    where = {"topic": name, "where": there}
    if draw(st.integers(0, 5)):
        rows["observed"].append(where)
    if draw(st.booleans()):
        rows["desired"].append({"topic": name, "where": "west"})
    if draw(st.booleans()):
        rows["recorded"].append(where)
    if not rows["observed"] or not draw(st.integers(0, 4)):
        return
    mirror = {"mirror": name, "where": here, "link": "l", "source": name, "sourceCluster": there, "partitions": 1}
    state = draw(st.sampled_from(ROLE_STATES))
    rows["observed"].append({**mirror, "is": {"state": state, "first_copy_done": True}})
    if state == "STOPPED":
        rows["observed"].append({"topic": name, "where": here})
    if rows["recorded"] and draw(st.booleans()):
        rows["recorded"].append({**mirror, "state": draw(st.sampled_from(ROLES))})


def strangers(world: World) -> World:
    extra = dict(
        observed(item)
        for item in (
            {"topic": "stranger"},
            {"namespace": "z", "where": "east"},
            {"topic": "z:stranger", "where": "east"},
        )
    )
    return replace(world, observed={**world.observed, **extra})
