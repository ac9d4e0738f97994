"""Texts as they must be, in files; `python -m tests.cli.golden` writes them anew, and a person reads the difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Final

from reconciler.cli.text.lines import text_of
from reconciler.cli.text.markdown import plan_markdown
from reconciler.cli.text.plan_text import plan_text
from reconciler.cli.text.states_text import diff_text, repair_result_text, repair_text, unlock_text
from reconciler.cli.text.topics_text import profile_text, storage_text, storages_text
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
    return lambda: text_of(plan_text(plan, sample_results.Reading(), width=width))


TEXTS: Final[dict[str, Callable[[], str]]] = {
    "plan-everything.txt": lambda: text_of(plan_text(sample_results.everything(), sample_results.Reading())),
    **{f"plan-everything-{width}.txt": at_width(sample_results.everything(), width) for width in WIDTHS},
    **{f"plan-mounting-{width}.txt": at_width(sample_results.mount_plan(), width) for width in WIDTHS},
    **{f"plan-roles-{width}.txt": at_width(sample_results.roles(), width) for width in WIDTHS},
    "plan-everything.md": lambda: plan_markdown(sample_results.everything(), FORGE, date(2026, 1, 31)),
    "plan-empty.txt": lambda: text_of(plan_text(sample_results.empty())),
    "plan-empty.md": lambda: plan_markdown(sample_results.empty()),
    "plan-refused.txt": lambda: text_of(plan_text(sample_results.refused())),
    "plan-refused.md": lambda: plan_markdown(sample_results.refused()),
    "plan-switching.txt": lambda: text_of(plan_text(sample_results.switching())),
    "plan-switching.md": lambda: plan_markdown(sample_results.switching()),
    "plan-mounting.txt": lambda: text_of(plan_text(sample_results.mount_plan(), sample_results.Reading())),
    "plan-mounting.md": lambda: plan_markdown(sample_results.mount_plan()),
    "plan-roles.txt": lambda: text_of(plan_text(sample_results.roles(), sample_results.Reading())),
    "plan-roles.md": lambda: plan_markdown(sample_results.roles()),
    "plan-detailed.txt": lambda: text_of(plan_text(sample_results.detailed())),
    "plan-detailed.md": lambda: plan_markdown(sample_results.detailed()),
    "plan-large.md": lambda: plan_markdown(sample_results.many(2_000)),
    "plan-back.txt": lambda: text_of(plan_text(replace(sample_results.everything(), back_to=410))),
    "plan-back.md": lambda: plan_markdown(replace(sample_results.everything(), back_to=410)),
    "state-diff.txt": lambda: text_of(diff_text(sample_results.differing())),
    "state-unlocked.txt": lambda: text_of(unlock_text(sample_results.unlocked())),
    "state-unreadable.txt": lambda: text_of(unlock_text(sample_results.unreadable())),
    "state-repair.txt": lambda: text_of(repair_text(sample_results.repair())),
    "state-forgetting.txt": lambda: text_of(repair_text(sample_results.forgetting())),
    "state-repaired.txt": lambda: text_of(repair_result_text(sample_results.repaired())),
    "storage-tiered.txt": lambda: text_of(storage_text(sample_results.orders())),
    "storage-local.txt": lambda: text_of(storage_text(sample_results.local())),
    "storage-hidden.txt": lambda: text_of(storage_text(sample_results.hidden())),
    "storage-broken.txt": lambda: text_of(storage_text(sample_results.broken())),
    "profile.txt": lambda: text_of(profile_text(sample_results.profiled())),
    "storage-many.txt": lambda: text_of(storages_text(sample_results.many_topics())),
}

if __name__ == "__main__":
    for name, made in TEXTS.items():
        (FOLDER / name).write_text(made(), encoding="utf-8")
