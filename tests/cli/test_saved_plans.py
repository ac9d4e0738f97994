"""A plan reads the same after it was saved."""

from __future__ import annotations

import dataclasses

import pytest

from reconciler.cli.text.lines import text_of
from reconciler.cli.text.markdown import plan_markdown
from reconciler.cli.text.plan_text import plan_text
from reconciler.cli.text.sections import plan_of
from reconciler.planning.actions import Adopt, Change, Reason
from reconciler.planning.plan import Plan
from reconciler.planning.plan_rows import digest
from reconciler.planning.saved_plan import canonical_bytes, read_document, to_document
from reconciler.resources.address import Address
from tests.cli import sample_plans
from tests.cli.sample_roles import roles
from tests.cli.sample_switching import switching


def adoptions() -> Plan:
    """Return a plan that only changes what is remembered."""
    found = sample_plans.topic("shop:eu:found")
    moved = Adopt(address=found.address, observed=found, after=found, moved_from=Address("topic/west/shop:us:found"))
    remembered = dataclasses.replace(
        moved, moved_from=None, changes=(Change("protect", before=True, after=False),), reasons=(Reason.RECORD_ONLY,)
    )
    return dataclasses.replace(sample_plans.empty(), actions=(moved, remembered))


@pytest.mark.parametrize(
    "plan",
    [sample_plans.everything(), sample_plans.empty(), sample_plans.refused(), adoptions(), switching(), roles()],
    ids=range(6),
)
def test_a_saved_plan_reads_as_it_did(plan: Plan) -> None:
    plan = dataclasses.replace(plan, digest=digest(plan.actions))
    read = plan_of(read_document(canonical_bytes(to_document(plan, {}))))
    assert text_of(plan_text(read)) == text_of(plan_text(plan))
    assert plan_markdown(read) == plan_markdown(plan)
