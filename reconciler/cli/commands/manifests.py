"""The commands `init`, `validate`, `fmt`, `schema`, `export` and `import`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from reconciler.cli.console import detect_pipeline, open_stdout
from reconciler.cli.options import (
    FileOptions,
    ForLists,
    IntoFolder,
    OutFolder,
    OutputFormat,
    Report,
    TextOrJson,
    VerbosityOptions,
    WorkspaceOptions,
    expand_bundles,
)
from reconciler.cli.present import print_result, print_warnings, raise_verdict
from reconciler.cli.text.lines import EMPTY, make_line
from reconciler.errors import UsageError
from reconciler.runtime.text import pluralize

if TYPE_CHECKING:
    from reconciler.cli.json.base import JsonObject
    from reconciler.cli.text.lines import Line
    from reconciler.operations.manifest_files import ValidationResult


@expand_bundles
def init_command(
    place: VerbosityOptions,
    directory: Annotated[Path, Argument(metavar="DIR", help="Folder to create.", show_default=True)] = Path(),
    state: Annotated[
        str | None,
        Option(
            metavar="URL",
            help="URL of the state: file://folder, s3://bucket/prefix, gs://… or az://….",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Create a workspace to start from. Overwrites nothing."""
    from reconciler.cli.output_files import check_folder
    from reconciler.operations.init import init

    invocation = place.read_invocation()
    check_folder("DIR", invocation.cwd / directory)
    made = init(invocation, directory, state=state)
    screen = open_stdout()
    screen.show([make_line(f"Made a workspace in {made.folder}, its state in {made.state}")])
    screen.show([make_line("  + ", str(path.relative_to(made.folder))) for path in made.files])
    screen.show([EMPTY, make_line("Next:  edit manifests/example.yaml, then  reconciler plan")])


@expand_bundles
def validate_command(
    files: FileOptions, place: WorkspaceOptions, form: ForLists = "text", report: Report = None
) -> None:
    """Check manifests, life cycles and the guards that need no cluster. Reads files only."""
    from reconciler.cli.present import format_validation
    from reconciler.cli.reports import (
        annotate_files,
        build_validation_remarks,
        build_validation_summary,
        parse_reports,
        show_remarks,
    )
    from reconciler.operations.manifest_files import validate

    invocation = place.read_invocation()
    wanted_reports = parse_reports(report, form, "validate", invocation, files.environment)
    with wanted_reports.report_errors():
        validated = validate(invocation, files.build_select())

    def show(form: OutputFormat) -> None:
        match form:
            case "text" | "json":
                print_result(form, lambda: format_validation(validated), lambda: _build_validation_row(validated))
            case _:
                show_remarks(build_validation_remarks(validated, invocation.tool, files.environment), form, invocation)

    wanted_reports.write(show, lambda: build_validation_summary(validated))
    print_warnings(validated.warnings)
    show(form)
    if form == "text" and detect_pipeline() == "github":
        from reconciler.operations.manifest_files import find_folder

        annotate_files(build_validation_remarks(validated, invocation.tool, files.environment), find_folder(invocation))
    raise_verdict(validated.verdict)


def _build_validation_row(validated: ValidationResult) -> JsonObject:
    from reconciler.cli.json.checks_json import VALIDATE, build_validation

    return VALIDATE.build_row(build_validation(validated))


@expand_bundles
def fmt_command(
    place: WorkspaceOptions,
    paths: Annotated[
        list[Path] | None,
        Argument(metavar="PATH", help="Files or folders; by default the workspace's.", show_default=False),
    ] = None,
    check: Annotated[bool, Option("--check", help="Change nothing; exit 1 if a file would change.")] = False,
) -> None:
    """Put manifests into canonical form. Comments stay."""
    from reconciler.operations.manifest_files import format_files

    formatted = format_files(place.read_invocation(), tuple(paths or ()), check=check)
    word = "would change" if check else "changed"
    screen = open_stdout()
    screen.show([make_line(f"{word}  {path}") for path in formatted.changed])
    screen.show([make_line(f"{pluralize(formatted.files, 'file')}, {len(formatted.changed)} {word}")])
    raise_verdict(formatted.verdict)


@expand_bundles
def schema_command(
    kind: Annotated[
        str | None, Argument(metavar="KIND", help="A schema; by default all names.", show_default=False)
    ] = None,
    folder: Annotated[
        Path | None, Option("--out", "-o", metavar="DIR", help="Write to this folder, a file each.", show_default=False)
    ] = None,
) -> None:
    """Print the JSON Schema of a kind of manifest or of an output, for editors and programs."""
    from reconciler.cli.json.schemas import build_schema_files
    from reconciler.cli.output_files import check_name

    bodies = build_schema_files()
    if kind is not None:
        bodies = {_find_schema_name(kind, bodies): bodies[_find_schema_name(kind, bodies)]}
    if folder is not None:
        check_name("--out", folder)
        _write_schemas(folder, bodies)
    elif kind is not None:
        open_stdout().write_bytes(next(iter(bodies.values())))
    else:
        open_stdout().show([make_line(name) for name in bodies])


def _find_schema_name(kind: str, bodies: Mapping[str, bytes]) -> str:
    for name in bodies:
        if name.lower() == kind.lower():
            return name
    raise UsageError(f"there is no schema '{kind}'", hint=f"Schemas: {', '.join(bodies)}")


def _write_schemas(folder: Path, bodies: Mapping[str, bytes]) -> None:
    from reconciler.cli.output_files import check_output
    from reconciler.objectstore.directory import write_atomically

    paths = {name: check_output("--out", folder / f"{name}.json", "a JSON Schema") for name in bodies}
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in bodies.items():
        write_atomically(paths[name], body)
    open_stdout().show([make_line(f"Wrote {pluralize(len(bodies), 'schema')} into {folder}")])


@expand_bundles
def export_command(
    files: FileOptions,
    place: WorkspaceOptions,
    cluster: Annotated[
        str, Argument(metavar="CLUSTER", help="Name of a declared cluster; with --bootstrap-server a new name.")
    ],
    out: OutFolder,
    from_object_storage: Annotated[
        bool, Option("--from-object-storage", help="Read only the cluster's objectStorage; topics get recoverFrom.")
    ] = False,
    cluster_id: Annotated[
        str | None,
        Option(
            "--cluster-id",
            metavar="UUID",
            help="With --from-object-storage: id of the cluster that wrote the objects; default CLUSTER itself.",
            show_default=False,
        ),
    ] = None,
    force: IntoFolder = False,
    bootstrap_server: Annotated[
        list[str] | None,
        Option(
            "--bootstrap-server",
            metavar="HOST:PORT",
            help="Address of a Kafka cluster that no file declares yet: export writes a whole workspace.",
            show_default=False,
        ),
    ] = None,
    security: Annotated[
        list[str] | None,
        Option(
            "--security",
            metavar="FIELD=VALUE",
            help="With --bootstrap-server, a field of the login: protocol=SASL_SSL, 'password=${env:NAME}' …",
            show_default=False,
        ),
    ] = None,
    namespace_separator: Annotated[
        Literal[".", "_", "-"] | None,
        Option(
            "--namespace-separator",
            help="With --bootstrap-server: character that ends a namespace in topic names; by default a dot.",
            show_default=False,
        ),
    ] = None,
    min_topics: Annotated[
        int,
        Option(
            "--min-topics",
            min=0,
            metavar="N",
            help="For flat names: number of topics with one prefix that makes it a namespace; 0: only prefixes of "
            "access rules.",
        ),
    ] = 3,
    form: TextOrJson = "text",
) -> None:
    """Write manifests of a cluster's resources. The next plan adopts them; from object storage, recovers them."""
    from reconciler.cli.json.exports_json import EXPORT
    from reconciler.cli.output_files import check_folder
    from reconciler.cli.text.export_text import format_export, format_workspace_advice
    from reconciler.operations.export import ExportOptions, export, parse_cluster

    invocation = place.read_invocation()
    folder = invocation.cwd / out
    check_folder("--out", folder)
    bare = parse_cluster(
        cluster, bootstrap_server or (), security or (), namespace_separator, cwd=invocation.cwd, out=folder
    )
    options = ExportOptions(
        out=folder,
        is_archived=from_object_storage,
        cluster_id=cluster_id,
        is_forced=force,
        bare=bare,
        at_least=min_topics,
    )
    exported = export(invocation, files.build_select(), cluster, options)

    def show() -> list[Line]:
        lines = format_export(exported)
        return (
            lines
            if bare is None
            else [*lines, *format_workspace_advice(exported, os.path.relpath(folder, invocation.cwd))]
        )

    print_result(form, show, lambda: EXPORT.build_row(exported))
    raise_verdict(exported.verdict)


Tool = Literal["terraform", "terraform-state", "topicctl", "jikkou", "julie", "kafka-gitops", "strimzi"]


@expand_bundles
def import_command(
    files: FileOptions,
    place: WorkspaceOptions,
    path: Annotated[Path, Argument(metavar="PATH", help="The file or folder of the other tool.")],
    tool: Annotated[
        Tool,
        Option(
            "--from",
            help="The tool. For terraform, PATH is its state, or the output of `terraform show -json`.",
            show_default=False,
        ),
    ],
    out: OutFolder,
    cluster: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            help="Name of the cluster in the manifests; THEIRS=OURS if the files name several clusters.",
            show_default=False,
        ),
    ] = None,
    min_topics: Annotated[
        int,
        Option(
            "--min-topics",
            min=0,
            metavar="N",
            help="Number of topics with one prefix that makes it a namespace; 0: only prefixes of access rules.",
        ),
    ] = 0,
    namespace_separator: Annotated[
        Literal[".", "_", "-"] | None,
        Option(
            "--namespace-separator",
            help="Character that ends a namespace in topic names; by default the declared one, or a dot.",
            show_default=False,
        ),
    ] = None,
    init: Annotated[
        bool, Option("--init", help="Create a workspace in DIR, with the clusters that the files name.")
    ] = False,
    bootstrap_server: Annotated[
        list[str] | None,
        Option(
            "--bootstrap-server",
            metavar="HOST:PORT",
            help="The same, with the cluster's address; NAME=HOST:PORT if the files name several clusters.",
            show_default=False,
        ),
    ] = None,
    force: IntoFolder = False,
    form: TextOrJson = "text",
) -> None:
    """Write manifests from the files of another tool, and list what they cannot express. Reads no cluster."""
    from reconciler.cli.json.exports_json import IMPORT
    from reconciler.cli.output_files import check_folder
    from reconciler.cli.text.export_text import format_import
    from reconciler.operations.imports import ImportOptions, import_files

    invocation = place.read_invocation()
    check_folder("--out", invocation.cwd / out)
    options = ImportOptions(
        tool=tool,
        path=path,
        out=out,
        clusters=tuple(cluster or ()),
        separator=namespace_separator,
        at_least=min_topics,
        bootstrap_servers=tuple(bootstrap_server or ()),
        is_workspace=init,
        is_forced=force,
    )
    imported = import_files(invocation, files.build_select(), options)
    print_result(form, lambda: format_import(imported), lambda: IMPORT.build_row(imported))
    raise_verdict(imported.verdict)
