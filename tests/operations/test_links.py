"""What no link may be, said at plan and before anything is done."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.applying.events import ActionDone, ActionStarted, Event, Summary
from reconciler.embedded.catalog.mirror_tables import alter_link
from reconciler.embedded.catalog.model import AclEntry
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import IncompleteError, MendFirstError, NotAuthorizedError, ReconcilerError, UserError
from reconciler.lifecycles import LinkStatus
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from reconciler.operations.mirrors.link_orders import create_links, order_links
from reconciler.operations.mirrors.mirror_orders import NewMirrorOptions, create_mirrors
from reconciler.operations.mirrors.mirror_views import describe_mirrors
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.orders import OrderResult
from reconciler.operations.steps.runner import EmergencyRun, SiteOptions, Stop
from reconciler.planning.orders import DeleteLinkOrder, PauseLinkOrder
from reconciler.resources.address import Address
from reconciler.resources.mirrors import ObservedLink
from tests.embedded.links.linked import LINK as LINK_NAME
from tests.embedded.links.linked import ORDERS, mirrored
from tests.operations.stage import CLUSTER, LINK, MINUTE, TOPIC, Refusing, Runner, denied, opened, produce, upkeep, want

if TYPE_CHECKING:
    from conftest import Bench


EAST = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec:
  embedded: {root: "file://.clusters/east"}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: east}
"""
NORTH = EAST.replace("east", "north")
TWELVE, THIRTEEN = "abcdefghij._", "abcdefghij._-"


@pytest.fixture
def linked(applied: Bench) -> Bench:
    """A source that is there, and a second cluster; the link is what each test declares."""
    applied.write("manifests/east.yaml", EAST)
    return applied.with_(environ=dict(os.environ))


def declare(bench: Bench, spec: str, *, name: str = "from-west", cluster: str = "east") -> Bench:
    link = (
        f"apiVersion: reconciler/v1\nkind: MirrorLink\nmetadata: {{name: {name}, cluster: {cluster}}}\nspec: {spec}\n"
    )
    bench.write("manifests/link.yaml", link)
    return bench


def refusal(bench: Bench) -> str:
    try:
        planned = bench.plan()
    except ReconcilerError as error:
        return str(error)
    assert planned.plan.errors, [action.id for action in planned.plan.actions]
    return "\n".join(f"{error.message}. {error.hint}" for error in planned.plan.errors)


REFUSED = [
    pytest.param(f"{{source: west, prefix: {THIRTEEN}}}", "up to 12 of", id="prefix-13"),
    pytest.param('{source: west, prefix: "a:"}', "up to 12 of", id="prefix-colon"),
    pytest.param(
        "{source: west, prefix: w., aclSync: {enabled: true, filters: [{resourceType: topic}]}}",
        "a link with a prefix cannot sync ACLs",
        id="prefix-and-acls",
    ),
    pytest.param(
        "{source: west, mode: bidirectional, consumerOffsetSync: {prefixGroups: true}}",
        "a bidirectional link cannot prefix groups",
        id="group-prefix-both-ways",
    ),
    pytest.param("{source: west, autoCreate: {enabled: true}}", "are required where enabled is true", id="no-filters"),
    pytest.param(
        "{source: west, consumerOffsetSync: {enabled: true}}",
        "are required where enabled is true",
        id="no-group-filters",
    ),
    pytest.param("{source: east}", "a link cannot mirror cluster east to itself", id="itself"),
    pytest.param(
        '{source: west, mirrorTopics: [{source: "shop:orders", partitions: 3}]}', "partitions", id="partitions"
    ),
    pytest.param(
        '{source: west, mirrorTopics: [{source: "shop:nowhere"}]}', "neither there nor declared", id="no-source-topic"
    ),
    pytest.param(
        '{source: west, mirrorTopics: [{source: "shop:order"}]}',
        "Did you mean shop:orders? Declare the Topic on cluster west, or correct mirrorTopics.source.",
        id="nearest-source-topic",
    ),
    pytest.param(
        '{source: west, mirrorTopics: [{source: "shop:orders", configs: {cleanup.policy: compact}}]}',
        "is synced from the source",
        id="synced-config",
    ),
    pytest.param(
        '{source: west, mirrorTopics: [{source: "shop:orders", state: reversed}]}',
        "cannot be reversed",
        id="reversed-one-way",
    ),
]


@pytest.mark.fact("F-C-005", "F-C-008", "F-C-023", "F-C-030", "F-C-031", "F-C-032", "F-C-050", "F-C-073")
@pytest.mark.parametrize(("spec", "says"), REFUSED)
def test_a_link_that_cannot_be_is_refused_at_plan(linked: Bench, spec: str, says: str) -> None:
    assert says in refusal(declare(linked, spec))


def test_rules_of_everything_are_asked_for_as_the_refusal_says(linked: Bench) -> None:
    says = refusal(declare(linked, "{source: west, aclSync: {enabled: true}}"))
    example = says.partition("write `")[2].partition("`")[0]
    assert declare(linked, f"{{source: west, aclSync: {{enabled: true, {example}}}}}").apply().verdict is None


@pytest.mark.fact("F-C-030")
def test_a_prefix_of_twelve_is_taken(linked: Bench) -> None:
    spec = f'{{source: west, prefix: {TWELVE}, mirrorTopics: [{{source: "shop:orders"}}]}}'
    ids = [action.id for action in declare(linked, spec).plan().plan.actions]
    assert f"create:mirror/east/shop:{TWELVE}orders" in ids


def damage(bench: Bench, prefix: str) -> None:
    """Damage objects of `east`: `catalog` says what there is, `cluster.json` which cluster it is."""
    store = DirectoryStore(bench.folder / ".clusters/east")
    for key in [listed.key for listed in store.list(prefix)]:
        store.put(key, b"<html>")


def _pause(emergency: EmergencyRun) -> OrderResult:
    return order_links(emergency, ["link/east/from-west"], lambda link, _is_named: PauseLinkOrder(link, is_paused=True))


def _delete(emergency: EmergencyRun) -> OrderResult:
    return order_links(emergency, ["link/east/from-west"], lambda link, _is_named: DeleteLinkOrder(link))


def _make_link(emergency: EmergencyRun) -> OrderResult:
    return create_links(emergency, ["link/east/second"], {"source": "west", "prefix": "w."})


def _make_mirror(emergency: EmergencyRun) -> OrderResult:
    return create_mirrors(emergency, ["mirror/east/shop:orders"], NewMirrorOptions(link="from-west", configs={}))


def test_a_mirror_that_cannot_be_read_is_told_with_the_hint_that_mends_it(linked: Bench) -> None:
    assert declare(linked, "{source: west}").apply().verdict is None
    damage(linked, "catalog")
    with pytest.raises(UserError, match=r"catalog/head\.json cannot be read") as caught:
        describe_mirrors(SiteOptions(invocation=linked.invocation, select=Select()), ["mirror/east/shop:orders"])
    assert "Restore it from a copy of the store" in caught.value.hint


@pytest.mark.parametrize("ask", [_pause, _delete, _make_link, _make_mirror])
def test_what_was_asked_of_a_link_is_told_where_its_cluster_cannot_be_read_after_that(
    linked: Bench, ask: Callable[[EmergencyRun], OrderResult]
) -> None:
    assert declare(linked, "{source: west}").apply().verdict is None

    def lose(event: Event) -> None:
        if isinstance(event, Summary):
            damage(linked, "c")

    done = ask(replace(linked.acting(), report=lose))
    assert done.verdict is None
    states = list(done.states.values()) if isinstance(done, OrderResult) else [each.after for each in done.each]
    assert states in ([], [None])


def test_a_link_stays_and_says_why_if_one_of_its_mirrors_cannot_be_failed_over(linked: Bench) -> None:
    assert declare(linked, '{source: west, mirrorTopics: [{source: "shop:orders"}]}').apply().verdict is None
    assert create_links(linked.acting(), ["link/east/second"], {"source": "west", "prefix": "w."}).verdict is None

    def lose(event: Event) -> None:
        if isinstance(event, ActionStarted) and event.id.startswith("failover:"):
            opened(linked, "east").delete_topic("shop:orders")

    links = ["link/east/from-west", "link/east/second"]
    result = order_links(
        replace(linked.acting(), report=lose), links, lambda link, _is_named: DeleteLinkOrder(link, is_forced=True)
    )
    message = str(result.failed[Address("link/east/from-west")])
    assert message.startswith("link/east/from-west stays as it is: failover:mirror/east/shop:orders: "), message
    assert list(opened(linked, "east").catalog.read().links) == ["from-west"]


TWIN = {"source": "west", "mode": "bidirectional"}


def make_half_of_a_twin(linked: Bench) -> tuple[OrderResult, list[str]]:
    """Stop while the first half of a link is made, and return what was said, and where there is a half."""
    assert declare(linked, "{source: west}").apply().verdict is None
    stop = Stop()

    def end(event: Event) -> None:
        if isinstance(event, ActionDone):
            stop.request()

    emergency = replace(linked.acting(no_state=True), report=end, stop=stop)
    made = create_links(emergency, ["link/east/twin"], TWIN)
    return made, halves(linked)


def halves(linked: Bench) -> list[str]:
    return [name for name in ("east", "west") if "twin" in opened(linked, name).catalog.read().links]


def test_nothing_more_is_begun_without_the_state_once_somebody_asked_to_stop(linked: Bench) -> None:
    made, there = make_half_of_a_twin(linked)
    assert there == ["east"]
    assert isinstance(made.verdict, IncompleteError)
    assert made.verdict.hint == "Run the same command again."


def test_a_link_of_which_one_half_was_made_is_made_whole_when_it_is_asked_for_again(linked: Bench) -> None:
    make_half_of_a_twin(linked)
    other = create_links(linked.acting(), ["link/east/twin"], {**TWIN, "retryTimeout": "10m"})
    assert "exists already" in str(other.verdict)
    assert halves(linked) == ["east"]
    assert create_links(linked.acting(), ["link/east/twin"], TWIN).verdict is None
    assert halves(linked) == ["east", "west"]
    assert "exists already" in str(create_links(linked.acting(), ["link/east/twin"], TWIN).verdict)


@pytest.mark.fact("F-C-097", "F-C-030")
@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("{source: west, prefix: w.}", "prefix of a link never changes"),
        ("{source: west, mode: bidirectional}", "mode of a link never changes"),
        ("{source: north}", "source of a link never changes"),
    ],
    ids=["prefix", "mode", "source"],
)
def test_what_makes_a_link_never_changes(linked: Bench, spec: str, says: str) -> None:
    linked.write("manifests/north.yaml", NORTH)
    assert declare(linked, "{source: west}").apply().verdict is None
    assert says in refusal(declare(linked, spec))


@pytest.mark.fact("F-C-097", "F-C-030")
@pytest.mark.parametrize(
    ("spec", "fixed"),
    [("source: west, prefix: w.", "prefix"), ("source: north", "source"), ("source: west, mode: source", "mode")],
    ids=["prefix", "source", "mode"],
)
def test_no_mirror_is_offered_to_be_deleted_for_a_link_that_never_changes(linked: Bench, spec: str, fixed: str) -> None:
    linked.write("manifests/north.yaml", NORTH)
    mirrors = 'mirrorTopics: [{source: "shop:orders"}]'
    assert declare(linked, f"{{source: west, {mirrors}}}").apply().verdict is None
    plan = declare(linked, f"{{{spec}, {mirrors}}}").plan().plan
    assert f"{fixed} of a link never changes" in " ".join(error.message for error in plan.errors)
    assert [action.blocked.allow for action in plan.actions if action.blocked] in ([], [None])


@pytest.mark.fact("F-C-011")
def test_a_mirror_never_changes_its_link(linked: Bench) -> None:
    mirrors = '{source: west, mirrorTopics: [{source: "shop:orders"}]}'
    assert declare(linked, mirrors).apply().verdict is None
    says = refusal(declare(linked, mirrors, name="other"))
    assert "it mirrors topic/west/shop:orders over link from-west, which never changes" in says


@pytest.mark.fact("F-C-023")
def test_disabling_auto_create_clears_its_filters(linked: Bench) -> None:
    declare(linked, '{source: west, autoCreate: {enabled: true, filters: [{name: "shop:x"}]}}')
    assert linked.apply().verdict is None
    declare(linked, '{source: west, autoCreate: {enabled: false, filters: [{name: "shop:x"}]}}')
    assert linked.apply().verdict is None
    assert linked.plan().plan.is_empty
    east = EmbeddedCluster.open(DirectoryStore(linked.folder / ".clusters/east"), now_ms=lambda: 0, new_id=str)
    assert not east.catalog.read().links["from-west"].declared.get("autoCreate", {}).get("filters")


@pytest.mark.fact("F-C-027")
@pytest.mark.parametrize(
    "no_longer",
    ['enabled: true, filters: [{name: "shop:orders", filterType: exclude}, {name: "*"}]', "enabled: false"],
    ids=["excluded", "switched off"],
)
def test_a_plan_deletes_a_mirror_that_its_link_made_and_does_not_take_any_more(linked: Bench, no_longer: str) -> None:
    mirror = "mirror/east/shop:orders"
    allowed = Select(allow=(f"delete:{mirror}",))
    declare(linked, '{source: west, autoCreate: {enabled: true, filters: [{name: "shop:", patternType: prefixed}]}}')
    assert linked.apply().verdict is None
    upkeep(linked, "mirror")
    errors = linked.plan(allowed).plan.errors
    (message,) = [each.message for each in errors]
    assert message.startswith("it cannot be deleted: the autoCreate filters of link/east/from-west take its source")
    declare(linked, f"{{source: west, autoCreate: {{{no_longer}}}}}")
    assert linked.apply().verdict is None
    (warning,) = [each for each in linked.plan().plan.warnings if "autoCreate" in each.message]
    assert warning.hint == f"To delete one with its records: --allow delete:{mirror}"
    assert [action.id for action in linked.plan(allowed).plan.actions] == [f"delete:{mirror}"]
    assert linked.apply(allowed).verdict is None
    upkeep(linked, "mirror")
    assert "shop:orders" not in opened(linked, "east").topics()
    assert not [each for each in linked.plan().plan.warnings if "autoCreate" in each.message]


@pytest.mark.fact("F-C-005")
def test_no_mirror_is_made_of_a_cluster_that_cannot_be_reached(linked: Bench) -> None:
    declare(linked, '{source: west, mirrorTopics: [{source: "shop:orders"}]}')
    (linked.folder / ".clusters/west").rename(linked.folder / "away")
    planned = linked.plan()
    assert not [action.id for action in planned.plan.actions if "mirror/" in action.id]
    assert "cannot read cluster west" in str(planned.verdict())
    planned = linked.plan(Select(excludes=("*/west/*",))).plan
    assert not [action.id for action in planned.actions if "mirror/" in action.id]
    assert "its source, cluster west, was not read" in "\n".join(warning.message for warning in planned.warnings)


# Filters of a link that take nothing of what is on its source: a warning where they are written.


@pytest.mark.fact("F-C-022", "F-C-040")
def test_filters_that_take_nothing_are_named_with_their_line_and_the_nearest_name(bench: Bench) -> None:
    for name in ("west", "east"):
        bench.write(f"manifests/{name}.yaml", CLUSTER.replace("NAME", name))
    bench.write("manifests/orders.yaml", TOPIC)
    assert bench.apply().verdict is None
    produce(bench, "west", "one")
    opened(bench, "west").groups.commit("checkout", {("shop:orders", 0): 1})
    syncing = (
        'autoCreate: {enabled: true, filters: [{name: "shop:ordres"}]}\n'
        "  consumerOffsetSync:\n    enabled: true\n    filters:\n      - name: chekout\n  mirrorTopics:"
    )
    bench.write(
        "manifests/link.yaml",
        LINK.replace("MODE", "destination").replace("ROLE", "mirroring").replace("mirrorTopics:", syncing),
    )
    warnings = bench.plan().plan.warnings
    assert [(each.source, each.message, each.hint) for each in warnings] == [
        (
            "manifests/link.yaml:7",
            "autoCreate filter 'shop:ordres' (literal) takes no topic of cluster west that is there",
            "Did you mean shop:orders? It takes effect if and when there is one.",
        ),
        (
            "manifests/link.yaml:11",
            "consumerOffsetSync filter 'chekout' (literal) takes no group of cluster west that is there",
            "Did you mean checkout? It takes effect if and when there is one.",
        ),
    ]


@pytest.mark.fact("F-C-097")
def test_what_never_changes_of_a_link_is_named_with_its_line(bench: Bench) -> None:
    for name in ("west", "east"):
        bench.write(f"manifests/{name}.yaml", CLUSTER.replace("NAME", name))
    bench.write("manifests/orders.yaml", TOPIC)
    link = LINK.replace("ROLE", "mirroring")
    bench.write("manifests/link.yaml", link.replace("MODE", "bidirectional").partition("  mirrorTopics")[0])
    assert bench.apply().verdict is None
    bench.write("manifests/link.yaml", link.replace("MODE", "destination").partition("  mirrorTopics")[0])
    errors = bench.plan().plan.errors
    assert [(each.source, each.message) for each in errors if each.address == "link/east/dr"] == [
        ("manifests/link.yaml:6", "mode of a link never changes ('bidirectional' → 'destination')")
    ]


# Clusters that keep their records in different ways are not linked.


@pytest.fixture
def two(bench: Bench) -> Bench:
    """Two clusters, and a topic on one of them."""
    for name in ("west", "east"):
        bench.write(f"manifests/{name}.yaml", CLUSTER.replace("NAME", name))
    bench.write("manifests/orders.yaml", TOPIC)
    assert bench.apply().verdict is None
    return bench


def say_format(bench: Bench, cluster: str, version: int) -> None:
    """Let a cluster be of another major format, as its own file says."""
    file = bench.folder / ".clusters" / cluster / "cluster.json"
    said = file.read_text()
    assert "reconciler.cluster/1" in said
    file.write_text(said.replace("reconciler.cluster/1", f"reconciler.cluster/{version}"))


@pytest.mark.parametrize(
    ("older", "said"), [("west", "of format 1 and west of 0"), ("east", "of format 0 and west of 1")]
)
def test_clusters_of_two_major_formats_are_refused_at_plan(two: Bench, older: str, said: str) -> None:
    want(two, "mirroring", "destination")
    assert not two.plan().plan.errors
    say_format(two, older, 0)
    (error,) = two.plan().plan.errors
    assert error.message == f"east is {said}: records are copied unchanged, so both need the same format"
    assert error.hint == "Upgrade the older of the two first."


def test_a_source_of_a_newer_format_than_is_known_is_refused_at_plan(two: Bench) -> None:
    want(two, "mirroring", "destination")
    say_format(two, "west", 2)
    with pytest.raises(UserError, match="newer format"):
        two.plan()


# Whether a link reaches its source, and what becomes of mirrors whose source is lost.


def mirroring(**spec: Any) -> Runner:
    return Runner(mirrored(mode="destination", **spec))


def told(link: ObservedLink) -> tuple[str, str] | None:
    return None if link.trouble is None else (link.status.value, link.trouble.code)


@pytest.mark.fact("F-C-069")
def test_an_unreachable_source_is_waited_for_as_long_as_it_takes() -> None:
    run = mirroring()
    run.over["west"] = Refusing()
    for _ in range(3):
        run.later(10 * MINUTE)
        assert run().status is LinkStatus.UNAVAILABLE
    assert (run.linked.status("east"), told(run.link())) == ("SOURCE_UNAVAILABLE", ("UNAVAILABLE", "TIMEOUT_ERROR"))
    first = run.linked.clock() - 2 * (10 * MINUTE + run.interval_ms)
    assert run.link().trouble.since_ms == first  # type: ignore[union-attr]
    run.over.clear()
    assert run().status is LinkStatus.ACTIVE
    assert (run.linked.status("east"), run.link().trouble) == ("ACTIVE", None)


def test_a_root_that_is_empty_may_only_not_be_mounted() -> None:
    run = mirroring()
    run.over["west"] = MemoryStore()
    assert run().status is LinkStatus.UNAVAILABLE


@pytest.mark.fact("F-C-072")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MendFirstError("the credentials have expired", hint="Renew them."), "AUTHENTICATION_ERROR"),
        (NotAuthorizedError("not for you", hint="Ask."), "AUTHENTICATION_ERROR"),
        (UserError("access denied", hint="Ask."), "MISCONFIGURATION_ERROR"),
    ],
)
def test_a_source_that_somebody_has_to_mend_breaks_the_link_until_that_is_done(
    error: ReconcilerError, code: str
) -> None:
    run = mirroring()
    run.over["west"] = Refusing(error)
    assert run().errors["link"] is error
    assert (run.linked.status("east"), told(run.link())) == ("LINK_FAILED", ("FAILED", code))
    run.over.clear()
    run()
    assert (run.linked.status("east"), told(run.link())) == ("ACTIVE", None)


@pytest.mark.fact("F-C-072")
def test_another_cluster_at_the_place_of_the_source_is_never_followed() -> None:
    run = mirroring(autoCreate={"enabled": True, "filters": [{"name": "*"}]})
    run()
    run.over["west"] = MemoryStore()
    other = EmbeddedCluster.create(run.over["west"], now_ms=run.linked.clock, new_id=run.linked.new_id)
    other.create_topic("clicks")
    done = run()
    assert (run.linked.status("east"), told(run.link())) == ("LINK_FAILED", ("FAILED", "MISCONFIGURATION_ERROR"))
    assert (
        f"cluster {other.cluster_id} answers as west, but the link was created for {run.linked.west.cluster_id}"
        in str(done.errors)
    )
    assert list(run.linked.east.topics()) == [ORDERS]
    run.over.clear()
    run()
    assert run.linked.status("east") == "ACTIVE"


def test_nothing_is_committed_where_nothing_changed() -> None:
    run = mirroring(
        autoCreate={"enabled": True, "filters": [{"name": "*"}]},
        consumerOffsetSync={"enabled": True, "filters": [{"name": "*"}]},
        aclSync={"enabled": True, "filters": [{"resourceType": "topic"}]},
    )
    run()
    before = run.serial()
    for _ in range(2):
        run.later(10 * MINUTE)
        assert run().errors == {}
    run.over["west"] = Refusing()
    run()
    run.later(MINUTE)
    run()
    assert run.serial() == before + 1


@pytest.mark.fact("F-C-070")
def test_a_mirror_fails_only_once_its_source_topic_was_gone_for_the_retry_timeout() -> None:
    run = mirroring(retryTimeout="5m")
    run()
    run.linked.west.delete_topic(ORDERS)
    assert run().failed == ()
    assert seen(run) == ("SOURCE_UNAVAILABLE", "SOURCE_TOPIC_MAY_BE_DELETED")
    run.interval_ms = 0
    run.later(5 * MINUTE)
    assert (run().failed, seen(run)[0]) == ((), "SOURCE_UNAVAILABLE")
    run.later(1)
    assert (run().failed, seen(run)) == ((ORDERS,), ("FAILED", "SOURCE_TOPIC_MAY_BE_DELETED"))


@pytest.mark.fact("F-C-070", "F-C-009")
@pytest.mark.parametrize("where", ["topic", "namespace"])
@pytest.mark.parametrize("operation", ["read", "all"])
def test_a_right_that_was_revoked_is_waited_for_and_may_come_back(where: str, operation: str) -> None:
    run = mirroring()
    give = (
        (lambda rules: run.linked.west.set_topic_acls(ORDERS, rules))
        if where == "topic"
        else (lambda rules: run.linked.west.set_namespace_acls("shop", rules))
    )
    give([denied(operation)])
    run()
    assert seen(run) == ("SOURCE_UNAVAILABLE", "AUTHORIZATION_ERROR")
    run.later(4 * MINUTE)
    give([])
    run()
    assert seen(run) == ("ACTIVE", None)
    give([denied(operation)])
    for expected in ("SOURCE_UNAVAILABLE", "FAILED"):
        run()
        assert seen(run)[0] == expected
        run.later(5 * MINUTE + 1)


@pytest.mark.fact("F-C-009")
@pytest.mark.parametrize(
    "rule",
    [
        denied("write"),
        denied("read", "User:link-other"),
        denied("read", "User:alice"),
        AclEntry("User:alice", "allow", ("read",)),
    ],
    ids=["another operation", "another link", "somebody else", "allowed to somebody else alone"],
)
def test_a_link_may_read_all_that_is_not_denied_to_it(rule: AclEntry) -> None:
    run = mirroring()
    run.linked.west.set_topic_acls(ORDERS, [rule])
    run()
    assert seen(run) == ("ACTIVE", None)


@pytest.mark.fact("F-C-094")
def test_a_source_that_was_made_anew_fails_its_mirror_at_once_and_is_never_mixed() -> None:
    run = mirroring()
    run.linked.west.delete_topic(ORDERS)
    run.linked.west.create_topic(ORDERS, partitions=3)
    found = run()
    assert found.failed == (ORDERS,)
    assert "was deleted and created again" in found.errors[ORDERS].message
    assert seen(run) == ("FAILED", "SOURCE_TOPIC_ID_CHANGED")
    assert run.linked.east.topic(ORDERS).partitions == 1


def test_a_paused_mirror_fails_too_where_its_source_stays_away_and_is_still_paused_where_not() -> None:
    run = mirroring()
    run.linked.provider("east").links.request_verb(ORDERS, "pause")
    run.linked.west.set_topic_acls(ORDERS, [denied()])
    run()
    assert seen(run) == ("PAUSED", "AUTHORIZATION_ERROR")
    run.later(5 * MINUTE + 1)
    run()
    assert seen(run)[0] == "FAILED"


@pytest.mark.fact("F-C-062")
def test_a_paused_link_does_nothing_by_itself() -> None:
    run = mirroring(paused=True, autoCreate={"enabled": True, "filters": [{"name": "*"}]})
    run.linked.west.create_topic("clicks")
    run.over["west"] = Refusing()
    before = run.serial()
    assert run().status is LinkStatus.PAUSED
    assert (run.serial(), run.linked.status("east")) == (before, "LINK_PAUSED")


def test_a_link_that_was_paused_while_it_was_broken_is_paused_once_it_is_mended() -> None:
    run = mirroring()
    run.over["west"] = Refusing(UserError("access denied", hint="Ask."))
    run()
    declared = {**run.link().declared.spec.to_json(), "paused": True}
    run.linked.east.catalog.commit(lambda draft: alter_link(draft, LINK_NAME, declared))
    assert (run().status, run.linked.status("east")) == (LinkStatus.FAILED, "LINK_FAILED")
    run.over.clear()
    run.linked.west.alter_topic(ORDERS, partitions=2)
    assert (run().status, run.linked.status("east")) == (LinkStatus.PAUSED, "LINK_PAUSED")
    assert run.linked.east.topic(ORDERS).partitions == 1


def test_two_runners_at_once_do_what_one_does() -> None:
    run = mirroring(autoCreate={"enabled": True, "filters": [{"name": "*"}]})
    other = Runner(run.linked)
    run.linked.west.create_topic("clicks")
    with ThreadPoolExecutor(2) as threads:
        done = [pass_.result() for pass_ in [threads.submit(run), threads.submit(other)]]
    assert [one.errors for one in done] == [{}, {}]
    assert sorted(run.linked.east.topics()) == ["clicks", ORDERS]


@pytest.mark.fact("F-C-082")
def test_a_promotion_that_may_not_read_its_source_says_so_and_ends_once_it_may() -> None:
    run = mirroring()
    run.linked.west.set_topic_acls(ORDERS, [denied()])
    run.linked.provider("east").links.request_verb(ORDERS, "promote", operation="p-1")
    assert isinstance(run().errors[ORDERS], NotAuthorizedError)
    assert seen(run) == ("PENDING_STOPPED", "AUTHORIZATION_ERROR")
    run.linked.west.set_topic_acls(ORDERS, [])
    assert run().drove == (ORDERS,)
    assert seen(run) == ("STOPPED", None)


def test_a_source_that_is_not_declared_here_is_said_and_noted_nowhere() -> None:
    run = mirroring()
    run.linked.stores.pop("west")
    before = run.serial()
    assert "cluster west, is not known here" in str(run().errors["link"])
    assert run.serial() == before


def seen(run: Runner) -> tuple[str, str | None]:
    mirror = run.linked.seen("east")
    return mirror.status.value, None if mirror.trouble is None else mirror.trouble.code
