"""Texts as they must be, in files; `python -m tests.cli.golden` writes them anew, and a person reads the difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Final

from reconciler.cli.text.lines import to_plain_text
from reconciler.cli.text.markdown import format_plan_comment
from reconciler.cli.text.plan_text import format_plan
from reconciler.cli.text.states_text import format_repair, format_repair_result, format_state_diff, format_unlock
from reconciler.cli.text.topics_text import format_profile, format_storage, format_storages
from reconciler.planning.plan import Plan
from reconciler.process import Forge
from tests.cli import sample_results

FORGE: Final = Forge(
    "https://git.example/a/b/blob/1f2e9ab4/",
    "https://git.example/a/b/commit/",
    "1f2e9ab4",
    "https://git.example/a/b/actions/runs/7",
)
FOLDER: Final = Path(__file__).parent / "golden"

WIDTHS: Final = (60, 80, 120, 200)


def at_width(plan: Plan, width: int) -> Callable[[], str]:
    return lambda: to_plain_text(format_plan(plan, sample_results.Reading(), width=width))


TEXTS: Final[dict[str, Callable[[], str]]] = {
    "plan-everything.txt": lambda: to_plain_text(format_plan(sample_results.everything(), sample_results.Reading())),
    **{f"plan-everything-{width}.txt": at_width(sample_results.everything(), width) for width in WIDTHS},
    **{f"plan-mounting-{width}.txt": at_width(sample_results.mount_plan(), width) for width in WIDTHS},
    **{f"plan-roles-{width}.txt": at_width(sample_results.roles(), width) for width in WIDTHS},
    "plan-everything.md": lambda: format_plan_comment(sample_results.everything(), FORGE, date(2026, 1, 31)),
    "plan-empty.txt": lambda: to_plain_text(format_plan(sample_results.empty())),
    "plan-empty.md": lambda: format_plan_comment(sample_results.empty()),
    "plan-refused.txt": lambda: to_plain_text(format_plan(sample_results.refused())),
    "plan-refused.md": lambda: format_plan_comment(sample_results.refused()),
    "plan-switching.txt": lambda: to_plain_text(format_plan(sample_results.switching())),
    "plan-switching.md": lambda: format_plan_comment(sample_results.switching()),
    "plan-mounting.txt": lambda: to_plain_text(format_plan(sample_results.mount_plan(), sample_results.Reading())),
    "plan-mounting.md": lambda: format_plan_comment(sample_results.mount_plan()),
    "plan-roles.txt": lambda: to_plain_text(format_plan(sample_results.roles(), sample_results.Reading())),
    "plan-roles.md": lambda: format_plan_comment(sample_results.roles()),
    "plan-detailed.txt": lambda: to_plain_text(format_plan(sample_results.detailed())),
    "plan-detailed.md": lambda: format_plan_comment(sample_results.detailed()),
    "plan-large.md": lambda: format_plan_comment(sample_results.many(2_000)),
    "plan-back.txt": lambda: to_plain_text(format_plan(replace(sample_results.everything(), back_to=410))),
    "plan-back.md": lambda: format_plan_comment(replace(sample_results.everything(), back_to=410)),
    "state-diff.txt": lambda: to_plain_text(format_state_diff(sample_results.differing())),
    "state-unlocked.txt": lambda: to_plain_text(format_unlock(sample_results.unlocked())),
    "state-unreadable.txt": lambda: to_plain_text(format_unlock(sample_results.unreadable())),
    "state-repair.txt": lambda: to_plain_text(format_repair(sample_results.repair())),
    "state-forgetting.txt": lambda: to_plain_text(format_repair(sample_results.forgetting())),
    "state-repaired.txt": lambda: to_plain_text(format_repair_result(sample_results.repaired())),
    "storage-tiered.txt": lambda: to_plain_text(format_storage(sample_results.orders())),
    "storage-local.txt": lambda: to_plain_text(format_storage(sample_results.local())),
    "storage-hidden.txt": lambda: to_plain_text(format_storage(sample_results.hidden())),
    "storage-broken.txt": lambda: to_plain_text(format_storage(sample_results.broken())),
    "profile.txt": lambda: to_plain_text(format_profile(sample_results.profiled())),
    "storage-many.txt": lambda: to_plain_text(format_storages(sample_results.many_topics())),
}

if __name__ == "__main__":
    for name, made in TEXTS.items():
        (FOLDER / name).write_text(made(), encoding="utf-8")
