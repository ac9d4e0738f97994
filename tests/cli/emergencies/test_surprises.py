"""What changes between the look at a cluster and the change of it: sources that die, lag, other operators, kills."""

from __future__ import annotations

import json
import shutil
import signal
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.cli.emergencies.ways import stage
from tests.cli.sample_workspaces import ORDERS, Twins
from tests.processes import ran

if TYPE_CHECKING:
    from collections.abc import Callable


QUESTION = "Type 'yes' to continue: "
FAILOVER = ("mirror", "failover", ORDERS)
RESTORED = "mirror/west/shop:orders"
EAST = stage("east", "shop:orders")
WEST = stage("west", "shop:orders")


def yes_after(act: Callable[[], object]) -> list[tuple[str, Callable[[], bytes]]]:
    """Answer a question with yes, after something happened."""

    def answer() -> bytes:
        act()
        return b"yes\n"

    return [(QUESTION, answer)]


def replace_cluster(twins: Twins, name: str) -> None:
    """Put another cluster in the place of one: a copy of it with an id of its own."""
    twins.lose(name)
    place = twins.folder / ".clusters"
    shutil.copytree(place / f"lost-{name}", place / name)
    identity = place / name / "cluster.json"
    identity.write_text(identity.read_text().replace(twins.cluster(name).cluster_id, str(uuid.uuid4())))


def catalog(twins: Twins) -> bytes:
    """Read what says everything of a cluster but its records."""
    return (twins.folder / ".clusters/east/catalog/head.json").read_bytes()


@pytest.mark.thorough
@pytest.mark.parametrize("state", [(), ("--no-state",)], ids=["with its state", "without"])
def test_a_source_that_dies_while_the_operator_is_asked_does_not_stop_a_failover(
    twins: Twins, on_terminal: Callable[..., tuple[int, str]], state: tuple[str, ...]
) -> None:
    code, shown = on_terminal(*FAILOVER, *state, types=yes_after(lambda: twins.lose("west")))
    assert (code, EAST(twins)) == (0, "STOPPED"), shown


@pytest.mark.thorough
@pytest.mark.parametrize("verb", ["promote", "reverse"])
def test_a_source_that_dies_while_the_operator_is_asked_leaves_a_mirror_that_needs_it_as_it_is(
    twins: Twins, on_terminal: Callable[..., tuple[int, str]], verb: str
) -> None:
    code, shown = on_terminal("mirror", verb, ORDERS, types=yes_after(lambda: twins.lose("west")))
    assert (code, EAST(twins)) == (1, "ACTIVE"), shown
    assert f"cannot {verb}" in shown or "needs both clusters" in shown


@pytest.mark.thorough
def test_lag_that_grows_while_the_operator_is_asked_does_not_stop_a_failover(
    twins: Twins, on_terminal: Callable[..., tuple[int, str]]
) -> None:
    code, shown = on_terminal(
        *FAILOVER, types=yes_after(lambda: twins.produce("topic/west/shop:orders", "late", "later"))
    )
    assert (code, EAST(twins)) == (0, "STOPPED"), shown


@pytest.mark.thorough
def test_a_restore_that_would_lose_more_than_was_shown_is_refused(
    twins: Twins, on_terminal: Callable[..., tuple[int, str]]
) -> None:
    twins.said(*FAILOVER, "--yes")
    twins.produce("topic/west/shop:orders", "shown")
    code, shown = on_terminal(
        *("mirror", "restore", RESTORED), types=yes_after(lambda: twins.produce("topic/west/shop:orders", "unseen"))
    )
    assert (code, WEST(twins)) == (6, None), shown
    assert twins.values("topic/west/shop:orders") == ["a", "b", "c", "shown", "unseen"]


@pytest.mark.thorough
def test_of_two_operators_who_fail_over_the_same_mirror_one_does_and_the_other_reads_that_it_is_done(
    twins: Twins, on_terminal: Callable[..., tuple[int, str]]
) -> None:
    code, shown = on_terminal(*FAILOVER, types=yes_after(lambda: twins.said(*FAILOVER, "--yes")))
    assert (code, EAST(twins)) == (1, "STOPPED"), shown
    assert "STOPPED: it is already stopped" in shown


WRONG = [
    ("mirror", "pause", ORDERS),
    (*FAILOVER, "--yes"),
    ("mirror", "promote", ORDERS, "--yes"),
    ("link", "pause", "link/east/twin"),
    ("link", "delete", "link/east/twin", "--force", "--yes"),
    ("topic", "alter", "topic/east/shop:orders", "--set", "retention.ms=8d", "--yes"),
    ("namespace", "delete", "east", "shop", "--yes", "--recursive"),
    ("namespace", "alter", "east", "shop", "--acl", "{principal: User:a, operations: [read]}", "--yes"),
]


@pytest.mark.parametrize("command", WRONG, ids=lambda command: " ".join(command[:2]))
def test_a_command_changes_nothing_on_another_cluster_that_answers_in_the_place_of_the_recorded_one(
    twins: Twins, command: tuple[str, ...]
) -> None:
    replace_cluster(twins, "east")
    before = catalog(twins)
    refused = twins.typed(*command)
    assert (refused.code, catalog(twins)) == (1, before), refused
    assert "cluster east should be " in refused.err


@pytest.mark.parametrize("command", [WRONG[0], WRONG[1]], ids=["pause", "failover"])
def test_without_the_state_the_cluster_that_answers_is_taken(twins: Twins, command: tuple[str, ...]) -> None:
    replace_cluster(twins, "east")
    done = twins.typed(*command, "--no-state")
    assert (done.code, EAST(twins)) == (0, "PAUSED" if command[1] == "pause" else "STOPPED"), done.err


KILLED_AT_A_WRITE = """
import os, signal, sys
from reconciler.cli.main import main
from reconciler.objectstore.directory import DirectoryStore

left, *typed = sys.argv[1:]
left = [int(left)]

def mortal(whole):
    def write(store, *given, **named):
        if store.root.parent.name == ".clusters":
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return whole(store, *given, **named)
    return write

for name in ("put", "swap", "copy_from", "delete"):
    setattr(DirectoryStore, name, mortal(getattr(DirectoryStore, name)))
sys.exit(main(typed))
"""
MOST_WRITES = 40
KILLED = [
    (("mirror", "pause", ORDERS), ("east", "PAUSED")),
    (("mirror", "failover", ORDERS, "--yes"), ("east", "STOPPED")),
    (("mirror", "promote", ORDERS, "--yes"), ("east", "STOPPED")),
    (("mirror", "reverse", ORDERS, "--yes"), ("west", "ACTIVE")),
    (("link", "delete", "link/east/twin", "--force", "--yes"), ("east", None)),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("command", "end"), KILLED, ids=lambda value: " ".join(value[:2]) if "/" in str(value) else "")
def test_a_command_that_is_killed_at_any_write_ends_as_it_should_when_it_is_typed_again(
    twins: Twins, tmp_path_factory: pytest.TempPathFactory, command: tuple[str, ...], end: tuple[str, str | None]
) -> None:
    whole = tmp_path_factory.mktemp("whole")
    shutil.copytree(twins.folder, whole, dirs_exist_ok=True)
    for writes in range(MOST_WRITES):
        dead = ran(KILLED_AT_A_WRITE, str(writes), *command, cwd=twins.folder)
        if dead.returncode == 0:
            break
        assert dead.returncode == -signal.SIGKILL, dead.stderr
        twins.said("state", "unlock", *held(twins), "--yes")
        again = twins.typed(*command)
        if again.code:  # It was done before the kill, or it began, and a run ends it.
            twins.said("run", "--once", "--only", "mirror")
        assert stage(end[0], "shop:orders")(twins) == end[1], (writes, again.err)
        planned = twins.typed("plan")
        assert planned.code == 0, (writes, planned.err)
        for name in (".clusters", ".state"):
            shutil.rmtree(twins.folder / name)
            shutil.copytree(whole / name, twins.folder / name)
    else:
        pytest.fail(f"the command was still not done after {MOST_WRITES} writes")
    assert writes > 0


def held(twins: Twins) -> tuple[str, ...]:
    """Return the run that holds the lease, if one does."""
    lockfile = next(path for path in (twins.folder / ".state").iterdir() if path.is_file())
    lease = json.loads(lockfile.read_bytes())["lease"]
    return (lease["run"],) if lease["status"] == "held" else ()


def test_of_several_topics_each_row_says_what_became_of_it(twins: Twins) -> None:
    names = ["topic/west/shop:views", "topic/west/shop:viwes", "topic/east/shop:orders"]
    done = twins.typed("topic", "delete", *names, "--allow", "delete:topic/west/shop:views", "--yes")
    assert done.code == 8, done.err
    assert [line for line in done.out.splitlines() if line[:1] in {"✓", "✗"}][-3:] == [
        "✓ topic/west/shop:views  deleted",
        "✗ topic/west/shop:viwes  does not exist",
        "✗ topic/east/shop:orders  is a mirror, and takes no records of its own",
    ]


def test_a_plan_without_the_source_that_mirrors_left_names_it_and_is_no_error(twins: Twins) -> None:
    twins.lose("west")
    twins.said("mirror", "failover", "--link", "link/east/twin", "--yes")
    for command in (("plan",), ("apply", "--yes")):
        done = twins.typed(*command)
        assert (done.code, "· not read: west\n" in done.out) == (0, True), done
        assert "cluster west cannot be read, and nothing on it is planned" in done.err
    assert twins.typed("drift").code == 1
