"""Show the plan of an order (a command's request), ask, show the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from reconciler.applying.events import ActionFailed, Event
from reconciler.cli.console import open_stderr, open_stdout
from reconciler.cli.options import FileOptions, LeaseOptions, TextOrJson, WorkspaceOptions
from reconciler.cli.present import format_finding, print_error_as_json, raise_verdict
from reconciler.cli.show import confirm_effects
from reconciler.cli.text.lines import Line, Span, Tone, make_line
from reconciler.planning.actions import Risk, Transition, Update, list_changed_addresses
from reconciler.resources.address import kind_of
from reconciler.runtime.text import format_count, pluralize

if TYPE_CHECKING:
    from reconciler.operations.steps.orders import OrderedResource, OrderResult
    from reconciler.operations.steps.runner import EmergencyRun
    from reconciler.planning.actions import Action
    from reconciler.planning.plan import Plan


@contextmanager
def open_emergency(
    acting: LeaseOptions,
    files: FileOptions,
    place: WorkspaceOptions,
    command: str,
    form: TextOrJson,
    *,
    is_dry_run: bool = False,
) -> Iterator[EmergencyRun]:
    """Yield access to clusters; print events and a final error as JSON if requested."""
    streamed: TextOrJson = "text" if is_dry_run else form
    with print_error_as_json(streamed), acting.open_emergency(files, place, command, form=streamed) as emergency:
        yield replace(emergency, report=_drop_failures(emergency.report)) if streamed == "text" else emergency


def _drop_failures(report: Callable[[Event], None]) -> Callable[[Event], None]:
    def pass_on(event: Event) -> None:
        if not isinstance(event, ActionFailed):
            report(event)

    return pass_on


_RISKS_TO_CONFIRM: Final = frozenset({Risk.DATA_LOSS, Risk.IRREVERSIBLE})


def build_loss_confirmation(verb: str, *, yes: bool, form: TextOrJson) -> Callable[[Plan], bool]:
    """Build a function that shows risks and asks before irreversible changes."""

    def confirm(plan: Plan) -> bool:
        risks = {action.risk for action in plan.actions}
        if risks <= {Risk.NONE} and not plan.warnings:
            return True
        return build_change_confirmation(verb, "resources", yes=yes or risks.isdisjoint(_RISKS_TO_CONFIRM), form=form)(
            plan
        )

    return confirm


def build_change_confirmation(verb: str, noun: str, *, yes: bool, form: TextOrJson) -> Callable[[Plan], bool]:
    """Build a function that shows a plan and asks: `Delete these 3 topics?`."""

    def confirm(plan: Plan) -> bool:
        changed = {at for action in plan.actions if action.blocked is None for at in list_changed_addresses(action)}
        # The deletion of links also changes mirrors, which do not count as links.
        count = len([at for at in changed if f"{kind_of(at)}s" == noun] or changed)
        question = f"{verb.capitalize()} {'it' if count == 1 else f'these {format_count(count)} {noun}'}?"
        return confirm_effects(_format_plan(plan), question, yes=yes, form=form)

    return confirm


def _format_plan(plan: Plan) -> list[Line]:
    from reconciler.cli.text.plan_text import format_plan

    return [*format_plan(plan), *_format_total_loss(plan), *map(format_finding, plan.warnings)]


def _format_total_loss(plan: Plan) -> Iterator[Line]:
    costs = [cost for action in plan.actions if (cost := action.estimate.role) is not None]
    losing = [lost for cost in costs if (lost := cost.lost_offsets)]
    unknown = sum(cost.unknown is not None for cost in costs)
    if len(costs) > 1 and (losing or unknown):
        lags = [cost.lost_ms for cost in costs if cost.lost_ms is not None]
        longest = f", at most {max(lags) / 1000:,.1f} s" if lags else ""
        untold = f"; unknown of {pluralize(unknown, 'mirror')}" if unknown else ""
        total = f"{pluralize(sum(losing), 'offset')} of {pluralize(len(losing), 'mirror')}{longest}{untold}"
        yield make_line(Span("Lost in total: ", Tone.DANGER), total)


def show_plan(plan: Plan, form: TextOrJson) -> None:
    """Print an order's plan as text or JSON."""
    if form == "json":
        from reconciler.planning.plan_rows import encode_plan

        open_stdout().write_bytes(encode_plan(plan))
    else:
        open_stdout().show(_format_plan(plan))


def show_order_result(result: OrderResult, done: str, form: TextOrJson) -> None:
    """Show a dry run's plan, or the results; raise the error of the order, if any.

    `done` is the verb's past participle: `deleted`.
    """
    if result.is_dry_run:
        show_plan(result.plan, form)
    elif form == "json":
        from reconciler.cli.json.runs_json import format_event

        open_stdout().write_bytes(format_event(result))
    else:
        if result.failed and result.plan.blocked:
            open_stdout().show(_format_plan(result.plan))
        elif not result.is_shown:
            open_stderr().show([format_finding(warning) for warning in result.plan.warnings])
        open_stdout().show(_format_result(result, done))
    raise_verdict(result.verdict)


def _format_result(result: OrderResult, done: str) -> list[Line]:
    if len(result.addresses) == 1 and result.failed:
        return []
    actions = {action.address: action for action in result.plan.actions}
    rows = (_format_resource(resource, actions.get(resource.address), done) for resource in result.resources)
    lines = [*chain.from_iterable(rows)]
    return [*lines, *_format_counts(result)] if len(result.addresses) > 1 else lines


def _format_counts(result: OrderResult) -> Iterator[Line]:
    failed, unchanged = len(result.failed), len(result.unchanged)
    counts = {"done": len(result.addresses) - failed - unchanged, "unchanged": unchanged, "refused or failed": failed}
    yield make_line(
        Span(f"{result.command}: ", Tone.STRONG),
        ", ".join(f"{format_count(count)} {what}" for what, count in counts.items() if count),
    )


def _format_resource(resource: OrderedResource, action: Action | None, done: str) -> Iterator[Line]:
    address, error, state = resource.address, resource.error, resource.state
    name = Span(address, Tone.STRONG)
    if error is not None:
        yield make_line(Span("✗ ", Tone.DANGER), name, f"  {error.message.removeprefix(address).lstrip(': ')}")
        yield make_line("    ", Span("hint: ", Tone.QUIET), error.hint)
    elif not resource.is_changed:
        yield make_line(Span("· ", Tone.QUIET), name, f"  unchanged{f': {state} already' if state else ''}")
    elif isinstance(action, Transition) and action.machine != "topic":
        yield make_line(Span("✓ ", Tone.ADD), name, f"  {done}: {action.from_state} → {state or '?'}")
    elif isinstance(action, Transition | Update):
        from reconciler.cli.text.action_words import format_headline, list_headlines

        is_trim = isinstance(action, Update) and action.is_trim
        first, *more = list_headlines(action) if is_trim else [format_headline(action)]
        yield make_line(Span("✓ ", Tone.ADD), name, f"  {first}")
        yield from (make_line(" " * (len(address) + 4), text) for text in more)
    else:
        yield make_line(Span("✓ ", Tone.ADD), name, f"  {done}{f': {state}' if state else ''}")
