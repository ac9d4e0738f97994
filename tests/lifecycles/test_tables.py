"""Every lifecycle, walked over every pair of state and verb against a table written down a second time."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from reconciler.errors import UserError
from reconciler.lifecycles import (
    LIFECYCLES,
    LINK,
    LINK_IS_PAUSED,
    MIRROR,
    MOUNT,
    PARTITION_DELETION,
    REVERSAL_SUSPENDED,
    SEGMENT,
    TIERING,
    UNMOUNT,
    Lifecycle,
    LinkStatus,
    MigrationState,
    MirrorStatus,
    TieringState,
)
from tests.lifecycles.mirror_states import as_lines

MIGRATION = """
planned    | prepare=preparing delete=gone     |
preparing  | cancel=canceling                  | prepared
prepared   | execute=executing cancel=canceling |
executing  | cancel=canceling                  | executed
executed   | finish=cut_over cancel=canceling  |
cut_over   |                                   | finished
finished   | delete=gone                       | gone
canceling  |                                   | cancelled
cancelled  | delete=gone                       |
gone       |                                   |
"""

LINKS = """
ABSENT      | create=ACTIVE               |
ACTIVE      | pause=PAUSED delete=ABSENT  | UNAVAILABLE FAILED
PAUSED      | resume=ACTIVE delete=ABSENT | FAILED
UNAVAILABLE | delete=ABSENT               | ACTIVE FAILED
FAILED      | delete=ABSENT reconfigure=ACTIVE |
"""

TIERS = """
ENABLED   | disable-tiering=DISABLING |
DISABLING |                           | DISABLED
DISABLED  | enable-tiering=ENABLED    |
"""

SEGMENTS = """
COPY_SEGMENT_STARTED    | | COPY_SEGMENT_FINISHED DELETE_SEGMENT_STARTED
COPY_SEGMENT_FINISHED   | | DELETE_SEGMENT_STARTED
DELETE_SEGMENT_STARTED  | | DELETE_SEGMENT_FINISHED
DELETE_SEGMENT_FINISHED | |
"""

PARTITION_DELETIONS = """
DELETE_PARTITION_MARKED   | | DELETE_PARTITION_STARTED
DELETE_PARTITION_STARTED  | | DELETE_PARTITION_FINISHED
DELETE_PARTITION_FINISHED | |
"""

HOUSEKEEPINGS = """
idle     | stop=stopped | active draining
active   | stop=stopped | pause idle
pause    | stop=stopped | active draining
draining | stop=stopped | idle
stopped  |              |
"""

TABLES = {
    "mount": MIGRATION,
    "unmount": MIGRATION,
    "mirror": as_lines(),
    "link": LINKS,
    "tiering": TIERS,
    "segment": SEGMENTS,
    "partition-deletion": PARTITION_DELETIONS,
    "housekeeping": HOUSEKEEPINGS,
}


def read(table: str) -> dict[str, tuple[dict[str, str], list[str]]]:
    rows = [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]
    return {
        state: ({verb: end for verb, _, end in (move.partition("=") for move in moves.split())}, itself.split())
        for state, moves, itself in rows
    }


PAIRS = [
    (name, str(state), verb)
    for name, lifecycle in LIFECYCLES.items()
    for state, verb in product(lifecycle.states, lifecycle.verbs)
]


def test_every_lifecycle_is_walked() -> None:
    assert LIFECYCLES.keys() == TABLES.keys()


@pytest.mark.parametrize("name", TABLES)
def test_every_state_of_a_lifecycle_is_in_its_table(name: str) -> None:
    assert [str(state) for state in LIFECYCLES[name].states] == list(read(TABLES[name]))


@pytest.mark.parametrize(("name", "state", "verb"), PAIRS)
def test_a_verb_does_what_the_table_says_or_is_refused(name: str, state: str, verb: str) -> None:
    lifecycle = LIFECYCLES[name]
    here = type(lifecycle.initial)(state)
    legal, _ = read(TABLES[name])[state]
    assert (verb in lifecycle.list_legal_verbs(here)) == (verb in legal)
    if verb in legal:
        assert lifecycle.apply_verb(here, verb) == legal[verb]
        return
    with pytest.raises(UserError) as refused:
        lifecycle.apply_verb(here, verb)
    for word in legal:
        assert word in refused.value.hint
    assert state in refused.value.message or (here, verb) in {(start, word) for start, word, _ in lifecycle.refusals}


@pytest.mark.parametrize(("name", "state"), [(name, state) for name, table in TABLES.items() for state in read(table)])
def test_a_state_moves_by_itself_where_the_table_says_and_nowhere_else(name: str, state: str) -> None:
    lifecycle = LIFECYCLES[name]
    here = type(lifecycle.initial)(state)
    _, itself = read(TABLES[name])[state]
    assert sorted(lifecycle.list_automatic_states(here)) == sorted(itself)
    for end in lifecycle.states:
        if str(end) in itself:
            assert lifecycle.follow_automatic_move(here, end) == end
        else:
            with pytest.raises(UserError):
                lifecycle.follow_automatic_move(here, end)


@pytest.mark.parametrize(("name", "start"), [(name, state) for name, table in TABLES.items() for state in read(table)])
def test_a_path_is_made_of_legal_moves(name: str, start: str) -> None:
    lifecycle = LIFECYCLES[name]
    here = type(lifecycle.initial)(start)
    for end in lifecycle.states:
        path = lifecycle.find_path(here, end)
        if path is None:
            continue
        at = here
        for move in path:
            assert move.start == at
            assert move in lifecycle.moves
            at = move.end
        assert at == end


def test_a_path_is_the_shortest() -> None:
    path = MIRROR.find_path(MirrorStatus.ACTIVE, MirrorStatus.STOPPED)
    assert path is not None
    assert [move.verb for move in path] == ["failover"]
    assert UNMOUNT.find_path(MigrationState.GONE, MigrationState.PLANNED) is None
    assert MOUNT.find_path(MigrationState.PLANNED, MigrationState.PLANNED) == ()


def test_cancelling_is_possible_in_exactly_four_states_of_a_migration() -> None:
    for lifecycle in (MOUNT, UNMOUNT):
        can = [state for state in lifecycle.states if "cancel" in lifecycle.list_legal_verbs(state)]
        assert can == ["preparing", "prepared", "executing", "executed"]
        can_delete = [state for state in lifecycle.states if "delete" in lifecycle.list_legal_verbs(state)]
        assert can_delete == ["planned", "finished", "cancelled"]


def test_failover_is_possible_from_every_mirror_state_but_stopped() -> None:
    mirrors = [state for state in MIRROR.states if state not in {MirrorStatus.ABSENT, MirrorStatus.REGULAR}]
    assert [state for state in mirrors if "failover" not in MIRROR.list_legal_verbs(state)] == [MirrorStatus.STOPPED]


def test_one_verb_may_lead_to_several_states_by_condition() -> None:
    assert MIRROR.apply_verb(MirrorStatus.ABSENT, "create", condition=LINK_IS_PAUSED) == MirrorStatus.LINK_PAUSED
    resumed = MIRROR.apply_verb(MirrorStatus.PAUSED, "resume", condition=REVERSAL_SUSPENDED)
    assert resumed == MirrorStatus.PENDING_SYNCHRONIZE
    with pytest.raises(UserError):
        MIRROR.apply_verb(MirrorStatus.ACTIVE, "pause", condition="nobody says this")


@pytest.mark.fact("F-K-042")
@pytest.mark.parametrize("lifecycle", [SEGMENT, PARTITION_DELETION])
def test_no_transition_leads_back(lifecycle: Lifecycle[Any]) -> None:
    for state in lifecycle.states:
        for end in lifecycle.list_automatic_states(state):
            assert lifecycle.follow_automatic_move(state, end) == end
            with pytest.raises(UserError, match="does not become"):
                lifecycle.follow_automatic_move(end, state)


def test_a_refusal_says_what_people_need_to_know() -> None:
    with pytest.raises(UserError, match="already stopped"):
        MIRROR.apply_verb(MirrorStatus.STOPPED, "promote")
    with pytest.raises(UserError, match="becomes DISABLED by itself"):
        TIERING.apply_verb(TieringState.DISABLING, "enable-tiering")
    with pytest.raises(UserError, match="Nothing can be asked for there"):
        MOUNT.apply_verb(MigrationState.GONE, "prepare")
    assert LINK.explain_refusal(LinkStatus.ACTIVE, "resume") == "link: cannot resume while ACTIVE"
