"""Texts as they must be, in files; `python -m tests.cli.golden` writes them anew, and a person reads the difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from reconciler.cli.text.lines import text_of
from reconciler.cli.text.markdown import plan_markdown
from reconciler.cli.text.plan_text import plan_text
from reconciler.cli.text.states_text import diff_text, repair_text, repaired_text, unlocked_text
from reconciler.cli.text.topics_text import storage_text, storages_text
from tests.cli import sample_results as sample_mounting
from tests.cli import sample_results as sample_plans
from tests.cli import sample_results as sample_roles
from tests.cli import sample_results as sample_states
from tests.cli import sample_results as sample_storages
from tests.cli import sample_results as sample_switching

FOLDER: Final = Path(__file__).parent / "golden"

TEXTS: Final[dict[str, Callable[[], str]]] = {
    "plan-everything.txt": lambda: text_of(plan_text(sample_plans.everything(), sample_plans.Reading())),
    "plan-everything-narrow.txt": lambda: text_of(
        plan_text(sample_plans.everything(), sample_plans.Reading(), width=80)
    ),
    "plan-everything.md": lambda: plan_markdown(sample_plans.everything()),
    "plan-empty.txt": lambda: text_of(plan_text(sample_plans.empty())),
    "plan-empty.md": lambda: plan_markdown(sample_plans.empty()),
    "plan-refused.txt": lambda: text_of(plan_text(sample_plans.refused())),
    "plan-refused.md": lambda: plan_markdown(sample_plans.refused()),
    "plan-switching.txt": lambda: text_of(plan_text(sample_switching.switching())),
    "plan-switching.md": lambda: plan_markdown(sample_switching.switching()),
    "plan-mounting.txt": lambda: text_of(plan_text(sample_mounting.mounting())),
    "plan-mounting-narrow.txt": lambda: text_of(plan_text(sample_mounting.mounting(), width=80)),
    "plan-mounting.md": lambda: plan_markdown(sample_mounting.mounting()),
    "plan-roles.txt": lambda: text_of(plan_text(sample_roles.roles())),
    "plan-roles-narrow.txt": lambda: text_of(plan_text(sample_roles.roles(), width=80)),
    "plan-roles.md": lambda: plan_markdown(sample_roles.roles()),
    "plan-large.md": lambda: plan_markdown(sample_plans.many(2_000)),
    "plan-back.txt": lambda: text_of(plan_text(replace(sample_plans.everything(), back_to=410))),
    "plan-back.md": lambda: plan_markdown(replace(sample_plans.everything(), back_to=410)),
    "state-diff.txt": lambda: text_of(diff_text(sample_states.differing())),
    "state-unlocked.txt": lambda: text_of(unlocked_text(sample_states.unlocked())),
    "state-unreadable.txt": lambda: text_of(unlocked_text(sample_states.unreadable())),
    "state-repair.txt": lambda: text_of(repair_text(sample_states.repair())),
    "state-forgetting.txt": lambda: text_of(repair_text(sample_states.forgetting())),
    "state-repaired.txt": lambda: text_of(repaired_text(sample_states.repaired())),
    "storage-tiered.txt": lambda: text_of(storage_text(sample_storages.orders())),
    "storage-local.txt": lambda: text_of(storage_text(sample_storages.local())),
    "storage-hidden.txt": lambda: text_of(storage_text(sample_storages.hidden())),
    "storage-broken.txt": lambda: text_of(storage_text(sample_storages.broken())),
    "storage-many.txt": lambda: text_of(storages_text(sample_storages.many())),
}

if __name__ == "__main__":
    for name, made in TEXTS.items():
        (FOLDER / name).write_text(made(), encoding="utf-8")
