"""Plan, apply, drift and topics as DataFrames, for scripts and notebooks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.errors import DriftError
from reconciler.operations.steps.invocation import Invocation, Select, find_workspace_folder, format_finding, load_files
from reconciler.planning.plan_rows import format_done_counts, format_totals
from reconciler.process import build_invocation
from reconciler.runtime.dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from reconciler.applying.events import Event
    from reconciler.jobs.source import Session
    from reconciler.operations.drift import DriftItem
    from reconciler.operations.plan import PlanResult

# ruff: noqa: PLC0415 - slow to import, and not needed to read topics

_LOG: Final = logging.getLogger("reconciler")


@dataclass(frozen=True, slots=True)
class WorkspacePlan:
    """The result of `Workspace.plan`."""

    _planned: PlanResult = field(repr=False)

    @property
    def summary(self) -> str:
        """Number of actions as text: `1 to add, 4 to change · 2 blocked`."""
        return format_totals(self._planned.plan)

    @property
    def is_empty(self) -> bool:
        """Whether the plan has no actions."""
        return self._planned.plan.is_empty

    @property
    def actions(self) -> tuple[str, ...]:
        """Ids of the actions in plan order, such as `create:topic/west/shop:orders`."""
        return tuple(action.id for action in self._planned.plan.actions)

    @property
    def blocked(self) -> Mapping[str, str]:
        """Id of each blocked action → the reason."""
        return {action.id: action.blocked.message for action in self._planned.plan.blocked if action.blocked}

    @property
    def errors(self) -> tuple[str, ...]:
        """Problems that prevent an apply, whatever `allow` says."""
        return tuple(map(format_finding, self._planned.plan.errors))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the files or the plan."""
        return (*self._planned.warnings, *map(format_finding, self._planned.plan.warnings))

    def to_json(self) -> bytes:
        """Return the document that `reconciler plan --format json` prints."""
        return self._planned.to_json()

    def __str__(self) -> str:
        return self.summary


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result of an apply."""

    done: tuple[str, ...]
    """Ids of completed actions, in the order in which they ended."""
    not_needed: tuple[str, ...]
    """Ids of planned actions that the clusters no longer needed."""
    summary: str
    """Number of completed actions as text: `1 added, 4 changed`."""

    def __str__(self) -> str:
        return self.summary


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folder of a workspace, with the environment and variables for reading its files."""

    folder: Path
    """Folder that contains `reconciler.yaml`."""
    _select: Select = field(repr=False)
    _environ: Mapping[str, str] | None = field(repr=False)

    @classmethod
    def open(
        cls,
        folder: str | Path | None = None,
        *,
        environment: str | None = None,
        variables: Mapping[str, str] | None = None,
        var_files: Iterable[str | Path] = (),
        environ: Mapping[str, str] | None = None,
    ) -> Workspace:
        """Find the workspace and check its files, without connecting to clusters or state.

        Args:
            folder: The folder of `reconciler.yaml`; by default the nearest one at or above the working folder.
            environment: The overlay and its state, as in `-e`.
            variables: Values of variables, as in `--var`.
            var_files: Files with values of variables, as in `--var-file`.
            environ: Environment variables for `${env:NAME}` and credentials; by default those of the process.

        Raises:
            UsageError: The folder is no workspace.
            UserError: There is no workspace, or its files have problems.
        """
        context = build_invocation(None if folder is None else Path(folder), warn=_LOG.warning, environ=environ)
        select = Select(
            environment=environment,
            variables=tuple(f"{name}={value}" for name, value in (variables or {}).items()),
            var_files=tuple(context.cwd / path for path in var_files),
        )
        load_files(context, select)
        return cls(find_workspace_folder(context).resolve(), select, None if environ is None else dict(environ))

    def plan(
        self,
        *,
        targets: Iterable[str] = (),
        excludes: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        changed_since: str | None = None,
        allow: Iterable[str] = (),
    ) -> WorkspacePlan:
        """Plan the actions that bring the clusters to the files; change nothing.

        Args:
            targets: Addresses or patterns to plan, with their dependencies.
            excludes: Addresses or patterns to leave out.
            labels: Labels that planned resources must have.
            changed_since: Git revision; only resources whose files changed since are planned.
            allow: Actions to exempt from guards, such as `delete:topic/west/shop:orders`.

        Raises:
            UserError: The files have problems, or the state is damaged or belongs to another workspace.
            RetryableError: A cluster does not answer.
        """
        from reconciler.operations.plan import plan

        select = self._select_with(targets, excludes, labels, changed_since, allow)
        return WorkspacePlan(plan(self._build_invocation(), select))

    def apply(
        self,
        plan: WorkspacePlan,
        *,
        allow: Iterable[str] = (),
        approved_by: Iterable[str] = (),
        lock_timeout_s: float = 600.0,
    ) -> ApplyResult:
        """Apply the actions of a plan that are still needed. An interrupt stops after the current action.

        Args:
            plan: A result of `plan`.
            allow: Actions to exempt from guards, as in `plan`.
            approved_by: Names of approvers, for `guards.approvals`.
            lock_timeout_s: Longest wait for the lease, in seconds.

        Raises:
            BlockedError: A guard rejects an action; nothing was done.
            StalePlanError: Clusters, files or state no longer match the plan; nothing was done.
            UserError: The plan has errors; nothing was done.
            LeaseError: Another run holds the lease.
            PartialError: Some actions failed, the others are done.
            IncompleteError: Work remains; the next apply continues it.
            RetryableError: A cluster does not answer; nothing was done.
        """
        from reconciler.operations.apply import ApplyOptions, Hooks, apply_planned
        from reconciler.operations.steps.runner import Stop

        options = ApplyOptions(yes=True, approved_by=tuple(approved_by), lock_timeout_s=lock_timeout_s)
        stop = Stop()
        hooks, planned = Hooks(lambda _planned: True, _log_event, stop), plan._planned  # noqa: SLF001 - its own
        # Cells of a notebook run in a thread with an event loop, so the apply needs another thread.
        with ThreadPoolExecutor(1, "apply") as thread:
            running = thread.submit(apply_planned, self._build_invocation(), planned, tuple(allow), options, hooks)
            try:
                applied = running.result()
            except KeyboardInterrupt:
                stop.request()
                applied = running.result()
        if applied.verdict is not None:
            raise applied.verdict
        done = applied.result.done if applied.result else ()
        actions = [action for action in applied.planned.plan.actions if action.id in done]
        return ApplyResult(done, applied.skipped, format_done_counts(actions) or "nothing")

    def drift(
        self,
        *,
        targets: Iterable[str] = (),
        excludes: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        changed_since: str | None = None,
    ) -> tuple[DriftItem, ...]:
        """Return the differences between clusters and files; see `plan` for the parameters."""
        from reconciler.operations.drift import drift

        drifted = drift(self._build_invocation(), self._select_with(targets, excludes, labels, changed_since, ()))
        if drifted.verdict is not None and not isinstance(drifted.verdict, DriftError):
            raise drifted.verdict
        return drifted.findings

    def _select_with(
        self,
        targets: Iterable[str],
        excludes: Iterable[str],
        labels: Mapping[str, str] | None,
        changed_since: str | None,
        allow: Iterable[str],
    ) -> Select:
        return replace(
            self._select,
            targets=tuple(targets),
            excludes=tuple(excludes),
            labels=tuple(f"{name}={value}" for name, value in (labels or {}).items()),
            changed_since=changed_since,
            allow=tuple(allow),
        )

    def _build_invocation(self) -> Invocation:
        return build_invocation(self.folder, warn=_LOG.warning, environ=self._environ)


def _log_event(event: Event) -> None:
    _LOG.debug("%s", event)


def register_topics(session: Session, workspace: Workspace) -> None:
    """Register the Spark format `topic-log`, which reads and writes topics of a workspace's clusters.

    Environment variables are pickled with the data source, and appear in no option or log.
    """
    from reconciler.operations.clusters.notebook import register_topic_opener

    context = workspace._build_invocation()  # noqa: SLF001 - its own
    register_topic_opener(session, workspace.folder, environ=context.environ, select=workspace._select)  # noqa: SLF001 - its own
