"""What is said of mounts and unmounts that wait, were stopped, were done, or are only forgotten."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from reconciler.applying.events import ActionDone, Summary
from reconciler.cli.progress import Lines
from reconciler.cli.text.inventory_text import action_lines
from reconciler.cli.text.lines import text_of
from reconciler.cli.text.markdown import plan_markdown
from reconciler.cli.text.plan_text import plan_text, totals
from reconciler.cli.text.remarks import plan_remarks
from reconciler.cli.text.sections import plan_of
from reconciler.errors import UserError
from reconciler.operations.steps.invocation import errors_of
from reconciler.planning.actions import Estimate, Forget, Reason
from reconciler.planning.findings import Finding
from reconciler.planning.plan import Plan, Waiting
from reconciler.planning.plan_rows import plan_row
from reconciler.planning.saved_plan import PlanDocument
from reconciler.resources.address import Address
from tests.cli.sample_mounting import actions
from tests.cli.sample_plans import empty

WEST, EAST = Address("mounting/west/shop:eu:clicks"), Address("mounting/east/shop:eu:clicks")
LOCATION = "shop:eu:clicks/67f5505a-32f3-4677-bcad-3c75a1a702a6/6"


def waiting() -> Plan:
    return replace(empty(), waiting=(Waiting(WEST, "preparing"), Waiting(EAST, "MIGRATING", after=WEST)))


def test_what_waits_is_counted_where_nothing_is_planned_and_where_something_is() -> None:
    assert totals(waiting()) == "2 waiting"
    assert totals(replace(waiting(), actions=actions()[:1])) == "1 to move · 2 waiting"
    assert totals(empty()) == "nothing to do"
    assert "**2 waiting**" in plan_markdown(waiting())


def test_a_mount_that_waits_for_another_clusters_unmount_says_what_run_finishes_and_what_apply_does() -> None:
    said = text_of(plan_text(waiting()))
    assert f"… {WEST}  preparing: `run` finishes it\n" in said
    after = f"waits for {WEST}: `run` finishes that one, then `apply` this one"
    assert f"… {EAST}  {after}\n" in said
    assert f"{EAST}: {after}" in [row.message for row in plan_remarks(waiting()).rows]


def test_what_something_waits_for_is_kept_in_the_json_of_a_plan() -> None:
    document = PlanDocument.model_validate_json(
        orjson.dumps({**plan_row(waiting()), "format": "reconciler.plan/1", "actions": []})
    )
    assert plan_of(document).waiting == waiting().waiting


@pytest.mark.parametrize("reason", [Reason.ALREADY_GONE, Reason.NO_LONGER_DECLARED, Reason.DESTROYED])
def test_forgetting_what_lies_detached_says_where_its_records_stay(reason: Reason) -> None:
    forget = Forget(
        address=Address("topic/west/shop:eu:clicks"), reasons=(reason,), estimate=Estimate(location=LOCATION)
    )
    said = text_of(plan_text(replace(empty(), actions=(forget,))))
    assert f"forget, leave it alone  its records stay in object storage: {LOCATION}\n" in said
    assert "gone from the cluster" not in said
    assert f"its records stay in object storage: {LOCATION}" in text_of(action_lines(forget))


def test_a_mount_is_explained_by_the_state_that_is_wanted() -> None:
    unmount, mount = actions()[0], actions()[2]
    assert "because    unmounted is wanted\n" in text_of(action_lines(unmount))
    assert "because    mounted is wanted\n" in text_of(action_lines(mount))


def test_the_last_count_in_a_pipe_is_of_all_that_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 6.0, 6.1, 6.2])
    lines = Lines(clock=lambda: next(times))
    for number in range(3):
        lines.take(ActionDone(f"mount:{number}", EAST, 0.1))
    lines.take(Summary("r1", done=3, failed=0, skipped=0, not_started=0, seconds=6.3))
    assert capsys.readouterr().err.splitlines() == ["1 action done", "3 actions done"]


def test_what_no_allow_lifts_is_not_mistaken_for_a_hint_with_one() -> None:
    hint = f"Where that cluster is gone for good: reconciler mount release {LOCATION} --allow release:{LOCATION}"
    error = errors_of([Finding(EAST, None, f"{LOCATION} is mounted on another cluster", hint)])
    assert isinstance(error, UserError)
    assert error.hint == "No --allow given here lifts these."
    assert errors_of([Finding(EAST, None, "no", "Mend it.")]).hint == "No --allow lifts these."
