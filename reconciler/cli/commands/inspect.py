"""The commands `show`, `explain`, `graph`, `verify` and `cluster check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from reconciler.cli import signals
from reconciler.cli.console import open_stdout
from reconciler.cli.options import FileOptions, StateUrlOptions, TextOrJson, WorkspaceOptions, expand_bundles
from reconciler.cli.present import print_result, raise_verdict
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.operations.show import Picture


@expand_bundles
def show_command(
    files: FileOptions,
    place: WorkspaceOptions,
    what: Annotated[
        str | None, Argument(metavar="ADDR|PLANFILE", help="An address or a saved plan; by default everything.")
    ] = None,
    form: Annotated[
        Literal["text", "json", "html"], Option("--format", help="Output format; html is a page of a saved plan.")
    ] = "text",
) -> None:
    """Show resources as files, state and cluster have them; or a saved plan, without reading a cluster."""
    if what is not None and _is_plan_file(what):
        from reconciler.cli.show import show_saved_plan
        from reconciler.operations.manifest_files import find_folder
        from reconciler.operations.show import show_plan

        show_saved_plan(show_plan(Path(what)), form, lambda: find_folder(place.read_invocation()))
        return
    if form == "html":
        raise UsageError(
            "only a saved plan is shown as a page", hint="Name its file: reconciler show plan.json --format html"
        )
    from reconciler.cli.json.inventory_json import SHOW
    from reconciler.cli.text.inventory_text import format_resources
    from reconciler.operations.show import show

    rows = show(place.read_invocation(), files.build_select(), what)
    print_result(
        form, lambda: format_resources(rows, one=what is not None), lambda: SHOW.build_row(rows), is_paged=True
    )


def _is_plan_file(what: str) -> bool:
    return what.startswith((".", "/")) or Path(what).is_file()


@expand_bundles
def explain_command(
    files: FileOptions,
    place: WorkspaceOptions,
    address: Annotated[
        str, Argument(metavar="ADDR|CODE", help="For example topic/west/shop:eu:orders, or E005, the code of an error.")
    ],
    is_whole: Annotated[bool, Option("--all", help="Also configs at their defaults.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Explain a resource's values and planned actions, or an error code."""
    from reconciler.cli.errors import CODE

    if CODE.fullmatch(address):
        _explain_code(address.upper(), form)
        return
    from reconciler.cli.json.inventory_json import EXPLAIN
    from reconciler.cli.text.inventory_text import format_explanation
    from reconciler.operations.show import explain

    explained = explain(place.read_invocation(), files.build_select(), address)
    print_result(
        form,
        lambda: format_explanation(explained, is_whole=is_whole),
        lambda: EXPLAIN.build_row(explained),
        is_paged=True,
    )


def _explain_code(code: str, form: str) -> None:
    from reconciler.cli.errors import EXPLANATIONS, wrap_explanation

    explanation = next((candidate for candidate in EXPLANATIONS if candidate.code == code), None)
    if explanation is None:
        raise UsageError(f"there is no error {code}", hint=f"Codes: {EXPLANATIONS[0].code} to {EXPLANATIONS[-1].code}.")
    if form != "text":
        raise UsageError("errors are explained only as text", hint="Leave --format out.")
    open_stdout().write(f"{explanation.code}: {explanation.title}\n\n{wrap_explanation(explanation.text)}\n")


@expand_bundles
def graph_command(
    files: FileOptions,
    place: WorkspaceOptions,
    plan: Annotated[
        Path | None,
        Argument(metavar="PLANFILE", help="Draw a saved plan's order; by default the workspace.", show_default=False),
    ] = None,
    lifecycle: Annotated[
        str | None,
        Option("--lifecycle", metavar="NAME", help="A state machine, such as mirror or mount.", show_default=False),
    ] = None,
    form: Annotated[
        Literal["text", "json", "mermaid", "dot"],
        Option("--format", help="Output format; mermaid and dot are for drawing tools."),
    ] = "text",
) -> None:
    """Draw the clusters with their links and mounts, the order of a plan, or a state machine. Reads no cluster."""
    if plan is not None and lifecycle is not None:
        raise UsageError("PLANFILE and --lifecycle cannot be combined", hint="Give PLANFILE or --lifecycle, not both.")
    picture = _draw_picture(files, place, plan, lifecycle)
    if form in {"text", "json"}:
        from reconciler.cli.json.inventory_json import GRAPH
        from reconciler.cli.text.inventory_text import format_graph

        print_result(
            "json" if form == "json" else "text",
            lambda: format_graph(picture),
            lambda: GRAPH.build_row(picture),
        )
        return
    from reconciler.cli.text.inventory_text import format_dot, format_mermaid

    open_stdout().write(format_mermaid(picture) if form == "mermaid" else format_dot(picture))


def _draw_picture(files: FileOptions, place: WorkspaceOptions, plan: Path | None, lifecycle: str | None) -> Picture:
    from reconciler.operations.show import draw_lifecycle, draw_plan, draw_workspace

    if lifecycle is not None:
        return draw_lifecycle(lifecycle)
    if plan is not None:
        from reconciler.operations.show import show_plan

        return draw_plan(show_plan(plan).plan)
    return draw_workspace(place.read_invocation(), files.build_select())


@expand_bundles
def verify_command(
    files: FileOptions,
    from_state: StateUrlOptions,
    place: WorkspaceOptions,
    left: Annotated[str, Argument(metavar="ADDR", help="One topic log; or a link, to compare each of its mirrors.")],
    right: Annotated[
        str | None, Argument(metavar="ADDR", help="The other; by default the source of a mirror.", show_default=False)
    ] = None,
    deep: Annotated[bool, Option("--deep", help="Read every record again; trust no stored digest.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Compare two topic logs by partition: count, ends and digest. Exits 1 if they differ."""
    from reconciler.cli.progress import open_reporter
    from reconciler.resources.address import Address, kind_of

    if kind_of(Address(left)) == "link":
        _verify_link(files, from_state, place, left, right, deep=deep, form=form)
        return
    from reconciler.cli.json.verify_json import VERIFICATION
    from reconciler.cli.text.runs_text import format_verification
    from reconciler.operations.steps.runner import Stop
    from reconciler.operations.verify import VerifyOptions, verify

    stop = Stop()
    with signals.forward_signals(stop, patience_s=signals.RUN_PATIENCE_S), open_reporter("text") as report:
        how = VerifyOptions(deep=deep, report=report, stop=stop)
        verified = verify(from_state.build_site_options(files, place), left, right, how)
    print_result(form, lambda: format_verification(verified), lambda: VERIFICATION.build_row(verified))
    raise_verdict(verified.verdict)


def _verify_link(
    files: FileOptions,
    from_state: StateUrlOptions,
    place: WorkspaceOptions,
    link: str,
    right: str | None,
    *,
    deep: bool,
    form: Literal["text", "json"],
) -> None:
    from reconciler.cli.json.verify_json import LINK_VERIFICATION
    from reconciler.cli.progress import open_reporter
    from reconciler.cli.text.runs_text import format_link_comparison
    from reconciler.operations.mirrors.mirror_selection import parse_link_address
    from reconciler.operations.steps.runner import Stop
    from reconciler.operations.verify import VerifyOptions, verify_link

    if right is not None:
        raise UsageError(
            f"{link} is a link, which takes no second address",
            hint="Give only the link: each of its mirrors is compared with its source.",
        )
    stop, address = Stop(), parse_link_address(link)
    with signals.forward_signals(stop, patience_s=signals.RUN_PATIENCE_S), open_reporter("text") as report:
        how = VerifyOptions(deep=deep, report=report, stop=stop)
        verified = verify_link(from_state.build_site_options(files, place), address, how)
    print_result(form, lambda: format_link_comparison(verified), lambda: LINK_VERIFICATION.build_row(verified))
    raise_verdict(verified.verdict)


@expand_bundles
def check_command(
    files: FileOptions,
    from_state: StateUrlOptions,
    place: WorkspaceOptions,
    cluster: Annotated[str, Argument(metavar="CLUSTER", help="The name of an embedded cluster.")],
    repair: Annotated[
        bool, Option("--repair", help="Finish interrupted work and delete leftovers; loses no record.")
    ] = False,
    deep: Annotated[bool, Option("--deep", help="Read every record of both tiers as well.")] = False,
    form: TextOrJson = "text",
) -> None:
    """Check every register and object of a cluster; exits 1 if something is lost or damaged."""
    from reconciler.cli.json.checks_json import CHECK
    from reconciler.cli.text.topics_text import format_check_result
    from reconciler.operations.clusters.cluster_check import run_cluster_check

    checked = run_cluster_check(from_state.build_site_options(files, place), cluster, repair=repair, deep=deep)
    print_result(form, lambda: format_check_result(checked), lambda: CHECK.build_row(checked))
    raise_verdict(checked.verdict)
