"""From a Kafka cluster that people made by hand to pull requests, in as many minutes as it takes to read.

`demo.py [FOLDER]`: the folder is made anew and left for the reader. It starts a broker of its own, which wants Java and
ends with it, unless `KAFKA_BOOTSTRAP=HOST:PORT` names one; there it makes topics that begin with `shop.` and `web.`, if
there are none yet, and leaves them.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
from broker import broker
from story import Story, chapter, require, say

STORY = Story.of(__file__)
WORKSPACE = STORY.workspace
run, edit, show, settled = STORY.run, STORY.edit, STORY.show, STORY.settled
BOOTSTRAP = ""
WEEK, MONTH = "604800000", "2592000000"
BY_HAND: Mapping[str, Mapping[str, str]] = {
    "shop.eu.orders": {"retention.ms": WEEK, "max.message.bytes": "2097152"},
    "shop.eu.payments": {"retention.ms": WEEK, "max.message.bytes": "2097152"},
    "shop.eu.returns": {"retention.ms": WEEK, "max.message.bytes": "2097152", "cleanup.policy": "compact"},
    "shop.us.orders": {"retention.ms": WEEK, "max.message.bytes": "2097152"},
    "web.clicks": {"retention.ms": MONTH},
    "web.views": {"retention.ms": MONTH},
    "web.searches": {"retention.ms": WEEK},
}
"""As years of `kafka-topics.sh` leave them."""
SHOP, EU, WEB = (f"namespaces/{name}.yaml" for name in ("shop", "shop/eu", "web"))
DRIFTED, BLOCKED = 3, 7


def main() -> int:
    given = os.environ.get("KAFKA_BOOTSTRAP")
    listening: AbstractContextManager[str] = nullcontext(given) if given else broker()
    with listening as address:
        globals()["BOOTSTRAP"] = address
        return STORY.tell(CHAPTERS)


@contextmanager
def admin() -> Iterator[Any]:
    """Yield the client with which somebody changes the cluster by hand."""
    from kafka import KafkaAdminClient  # noqa: PLC0415 - kafka-python is part of the extra that this story needs

    with closing(KafkaAdminClient(bootstrap_servers=[BOOTSTRAP])) as client:
        yield client


def begin() -> None:
    chapter("1. A cluster: seven topics, two rules, and nobody knows any more who asked for what")
    shutil.rmtree(WORKSPACE, ignore_errors=True)
    WORKSPACE.mkdir(parents=True)
    with admin() as by_hand:
        there = {name for name in by_hand.list_topics() if name.startswith(("shop.", "web."))}
        require(
            that=not there, otherwise=f"{BOOTSTRAP} has topics that this story would make: {', '.join(sorted(there))}"
        )
        make(by_hand)


def make(by_hand: Any) -> None:
    """Make topics and rules, and return once the broker shows them."""
    wanted = {
        name: {"num_partitions": 2, "replication_factor": 1, "configs": configs} for name, configs in BY_HAND.items()
    }
    for name, configs in BY_HAND.items():
        shown = " ".join(f"--config {key}={value}" for key, value in configs.items())
        say(f"   $ kafka-topics.sh --create --topic {name} --partitions 2 {shown}")
    by_hand.create_acls(rules())
    by_hand.create_topics(wanted)
    while not wanted.keys() <= set(by_hand.list_topics()):
        pass  # The controller has them; the broker hears of them a moment later.


def rules() -> list[Any]:
    """Return what checkout may do, as `kafka-acls.sh` says it."""
    from kafka.admin import (  # noqa: PLC0415 - as above
        ACL,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ResourcePattern,
        ResourceType,
    )

    say("   $ kafka-acls.sh --add --allow-principal User:checkout --consumer --topic shop. --group shop. …")
    return [
        ACL(
            "User:checkout",
            "*",
            ACLOperation.READ,
            ACLPermissionType.ALLOW,
            ResourcePattern(kind, "shop.", ACLResourcePatternType.PREFIXED),
        )
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]


def export() -> None:
    chapter("2. Exported: prefixes are namespaces, what topics share is said once")
    run("export", "west", "--bootstrap-server", BOOTSTRAP, "--out", ".", shows="Wrote ")
    show(SHOP)
    show(EU)
    show(WEB)


def adopt() -> None:
    chapter("3. The plan adopts everything and changes nothing")
    run("validate")
    run("plan", shows="to adopt")
    run("apply", "--yes")
    settled()


def pull_request() -> None:
    chapter(
        "4. A pull request: a new topic, and a month for all of shop. The plan is its comment; merged, it is applied"
    )
    say("   + .github/workflows/topics.yml")
    (WORKSPACE / ".github" / "workflows").mkdir(parents=True)
    shutil.copy(STORY.here / "pull-requests" / "topics.yml", WORKSPACE / ".github" / "workflows")
    say("   + manifests/namespaces/shop/refunds.yaml")
    shutil.copy(STORY.here / "pull-requests" / "refunds.yaml", WORKSPACE / "manifests" / "namespaces" / "shop")
    edit(SHOP, "retention.ms: 7d", "retention.ms: 30d")
    run("plan", "--format", "markdown", "--out", "plan.json", shows="1 to add, 4 to change")
    run("apply", "plan.json", "--yes")
    settled()


def by_hand_again() -> None:
    chapter("5. Somebody is in a hurry: drift tells, and the next apply sets it back")
    say("   $ kafka-configs.sh --alter --topic shop.eu.orders --add-config retention.ms=3600000")
    alter("shop.eu.orders", {"retention.ms": "3600000"})
    run("drift", expect=DRIFTED, shows="1h")
    run("apply", "--yes", "--only-drift")
    settled()


def alter(topic: str, configs: Mapping[str, str]) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType  # noqa: PLC0415 - as above

    with admin() as by_hand:
        by_hand.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(configs))])


def remove() -> None:
    chapter("6. A manifest goes: its topic stays until somebody allows its delete by name")
    say("   - manifests/namespaces/shop/refunds.yaml")
    (WORKSPACE / "manifests" / "namespaces" / "shop" / "refunds.yaml").unlink()
    run("plan", "--detailed-exitcode", expect=BLOCKED, shows="--allow delete:topic/west/shop:eu:refunds")
    run("apply", "--yes", expect=BLOCKED)
    run("apply", "--yes", "--allow", "delete:topic/west/shop:eu:refunds")
    settled()


CHAPTERS = (begin, export, adopt, pull_request, by_hand_again, remove)

if __name__ == "__main__":
    sys.exit(main())
