"""Writes the pages of docs/reference that programs need: exit codes, JSON outputs, metrics, environment variables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, get_args

from reconciler import errors
from reconciler.cli.errors import EXPLANATIONS
from reconciler.cli.json.base import JsonForm
from reconciler.cli.json.schemas import OUTPUTS
from reconciler.errors import ReconcilerError
from reconciler.lifecycles import LinkStatus, MirrorStatus
from reconciler.operations.metrics import PREFIX, ClusterReading, Metric, build_drift_metrics, build_metrics
from reconciler.operations.mirrors.mirror_rounds import JobOutcome, PassResult
from reconciler.resources.address import Address
from reconciler.resources.base import OnCluster
from reconciler.resources.measures import COUNTER_HELP, LEVELS, GroupLag, RemoteVitals, TopicVitals, Vitals
from reconciler.resources.mirror_link import MirrorLink, MirrorLinkSpec
from reconciler.resources.mirrors import ObservedLink, ObservedMirror

EXIT_CODES: Final[Mapping[int, tuple[str, str]]] = {
    0: ("Done, or nothing to do.", "Nothing."),
    1: (
        "An error: the files, the command or a cluster is wrong.",
        "Read the message: it says where, why and what to do.",
    ),
    2: ("Changes are pending. Only with `--detailed-exitcode` or `--fail-on`.", "Review the plan and apply it."),
    3: (
        "Drift: a cluster has moved away from the files.",
        "Set it back with `apply --only-drift`, or accept it with `drift --accept`.",
    ),
    4: ("Incomplete: work is left.", "Run the same command again, or `apply --resume`."),
    5: ("The lease is held by another run, or was lost.", "Wait, or look at `state unlock`."),
    6: ("The saved plan does not match the clusters any more.", "Plan again and have the new plan approved."),
    7: ("A guard blocks the plan.", "Allow the action by name, or change the files."),
    8: (
        "Some actions failed, or a cluster could not be read; the others are done.",
        "Read which failed, then run the same command again.",
    ),
    64: ("The command was called wrongly.", "See `--help`."),
    130: (
        "Interrupted before anything started, or a second time.",
        "Run the command again: it continues as after a crash.",
    ),
}
"""Exit code → its meaning, and what to do next."""

ENVIRONMENT: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "Set by you": (
        ("RECONCILER_VAR_NAME", "Value of the variable `${var.NAME}` in manifests. Not for secrets."),
        ("RECONCILER_BASE", "Branch or commit that a pull request is for, where the pipeline does not say it."),
        (
            "GITHUB_TOKEN",
            "The token with which `comment` and `drift --issue` write on GitHub, or on Gitea; else `GH_TOKEN`.",
        ),
        ("GITLAB_TOKEN", "The same on GitLab; `CI_JOB_TOKEN` may not comment."),
        ("GITEA_TOKEN", "The same on Gitea, before `GITHUB_TOKEN`."),
        ("FORGEJO_TOKEN", "The same on Forgejo."),
        ("NO_COLOR", "Print no colours, whatever the others say."),
        ("FORCE_COLOR", "Print colours in a pipe, too. JSON and other forms for programs stay as they are."),
        ("CLICOLOR_FORCE", "The same, unless it is `0`."),
        ("RECONCILER_PAGER", "What shows results longer than the screen, such as `less`. Unset: nothing does."),
        ("CLICOLOR", "With `0`: print no colours on a terminal."),
        ("JAVA_HOME", "The Java runtime that Spark uses; else the one on `PATH`."),
        ("PYSPARK_PYTHON", "The Python that Spark's workers use; else the one that runs the command."),
        ("SSL_CERT_FILE", "Authorities that forges' certificates are signed by, in place of the usual ones."),
        ("SSL_CERT_DIR", "The same as a folder."),
        ("XDG_CACHE_HOME", "Where caches of remote reads lie; else `~/.cache`."),
    ),
    "Set by pipelines": (
        ("CI", "Nothing is drawn over. With state on the local disk, `plan` and `apply` warn."),
        ("GITHUB_ACTIONS", "With `true`: the log is folded, and errors stand at their lines."),
        ("GITLAB_CI", "With `true`: the log is folded."),
        ("GITHUB_ACTOR", "Who runs the command, as leases and the history show it."),
        ("GITLAB_USER_LOGIN", "The same on GitLab."),
        (
            "GITHUB_SERVER_URL",
            "With `GITHUB_REPOSITORY` and `GITHUB_RUN_ID`: the page of the run, in leases and the history.",
        ),
        ("CI_JOB_URL", "The same on GitLab."),
        ("BUILD_URL", "The same on Jenkins."),
        ("GITHUB_REPOSITORY", "With `GITHUB_SERVER_URL`: where the links of a page to files and commits lead."),
        ("GITHUB_SHA", "The commit of those links, where git cannot tell it."),
        ("GITEA_ACTIONS", "That those links have the form of Gitea; `FORGEJO_ACTIONS` says the same."),
        ("FORGEJO_ACTIONS", "As `GITEA_ACTIONS`."),
        ("CI_PROJECT_URL", "With `CI_COMMIT_SHA`: the same on GitLab."),
        ("CI_COMMIT_SHA", "As `GITHUB_SHA`, on GitLab."),
        ("GITHUB_EVENT_NAME", "Whether this is a pull request, in which new secrets are not sent."),
        ("GITHUB_EVENT_PATH", "The file that says what the pull request is for."),
        ("CI_MERGE_REQUEST_DIFF_BASE_SHA", "The same on GitLab."),
        ("GITHUB_API_URL", "Where they write: the API of GitHub or Gitea."),
        ("GITHUB_REPOSITORY", "In which repository."),
        ("GITHUB_ACTIONS", "That this is a workflow of GitHub."),
        ("GITEA_ACTIONS", "That this is one of Gitea, which sets the names of GitHub, too."),
        ("GITEA_API_URL", "Before `GITHUB_API_URL`; so are `GITEA_REPOSITORY` and `GITEA_EVENT_PATH`."),
        ("FORGEJO_ACTIONS", "The same on Forgejo, and its other names."),
        ("GITLAB_CI", "That this is a pipeline of GitLab."),
        ("CI_API_V4_URL", "Where they write: the API of GitLab."),
        ("CI_MERGE_REQUEST_PROJECT_ID", "In which project; else `CI_PROJECT_ID`, else `CI_PROJECT_PATH`."),
        ("CI_MERGE_REQUEST_IID", "Into which merge request."),
        ("CI_OPEN_MERGE_REQUESTS", "The same where the pipeline is one of a branch, and there is one request for it."),
    ),
}
"""Variables that the tool itself reads, by who sets them; not those of clouds, and those that manifests refer to."""

_ABOUT_ENVIRONMENT: Final = """\
Buckets are reached with the variables that AWS's own tools read, such as `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
`AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_PROFILE` and `AWS_ENDPOINT_URL`; those of Google and Azure with the variables of
their tools, such as `GOOGLE_APPLICATION_CREDENTIALS`, `STORAGE_EMULATOR_HOST`, `AZURE_STORAGE_ACCOUNT` and
`AZURE_STORAGE_CONNECTION_STRING`: see [Object storage](../guides/object-storage.md).

A manifest names a secret as `${env:NAME}` or `${file:/path}`. Which names it may use is said in
[`spec.references`](manifests/workspace.md) of the workspace.
"""


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page below docs/reference."""
    yield "exit-codes.md", _exit_codes()
    yield "errors.md", _errors()
    yield "outputs.md", _outputs()
    yield "metrics.md", _metrics()
    yield "environment.md", _environment()


def codes_in_use() -> set[int]:
    """Return every exit code that an error has, and those of success and of a command that was called wrongly."""
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, ReconcilerError)]
    return {0, *(kind.exit_code for kind in kinds)}


def _exit_codes() -> str:
    rows = [(f"`{code}`", *EXIT_CODES[code]) for code in sorted(codes_in_use())]
    about = "The code with which a command ends, for scripts and pipelines."
    return f"# Exit codes\n\n{about}\n\n{table(('code', 'meaning', 'what to do'), rows)}"


def _errors() -> str:
    about = "An error that has a code names it: `more: reconciler explain E005` prints what stands here."
    parts = [f"## {each.code}: {each.title}\n\n{_in_markdown(each.text)}\n" for each in EXPLANATIONS]
    return "\n".join([f"# Errors with a code\n\n{about}\n", *parts])


def _in_markdown(text: str) -> str:
    """Return a text with its indented lines as a block."""
    return re.sub(r"(?:\n  .*)+", lambda block: f"\n\n```text{block[0]}\n```", text)


def _outputs() -> str:
    about = (
        "Commands that print results take `--format json`. Each document names its form in `format`. Fields may be "
        "added to a form; none is renamed or removed. `reconciler schema NAME` prints the JSON Schema, and "
        "`reconciler schema --out DIR` writes all of them."
    )
    rows = [(f"`{name}`", f"`{_form(model)}`", _first(model)) for name, model in OUTPUTS.items()]
    return f"# JSON outputs\n\n{about}\n\n{table(('schema', '`format`', 'what it holds'), rows)}"


def _form(model: Any) -> str:
    if isinstance(model, JsonForm):
        return model.constants["format"]
    if isinstance(model, tuple):
        return "one event a line"
    field = model.model_fields.get("format")
    values = get_args(field.annotation) if field is not None else ()
    return str(values[0]) if values else "SARIF 2.1.0"


def _first(model: Any) -> str:
    if isinstance(model, tuple):
        return "One line of `apply --format json`, or of a command that changes a cluster."
    about = (model.about or model.record.__doc__) if isinstance(model, JsonForm) else model.__doc__
    return inspect.cleandoc(about or "").split("\n\n")[0].replace("\n", " ")


def _metrics() -> str:
    about = (
        "`reconciler run --metrics FILE` writes them after every pass: in the text format of Prometheus, or as JSON "
        "where the name ends in `.json`. At most 1,000 topics and 1,000 groups of a cluster have series of their own. "
        "`reconciler drift --metrics FILE` writes those that begin with `reconciler_drift_`."
    )
    rows = [
        (f"`{PREFIX}{each.name}`", each.kind, ", ".join(f"`{label}`" for label in _labels(each)) or "none", each.help)
        for each in (*_sample(), *build_drift_metrics("shop", "prod", {}, 0, is_whole=True, now_s=1.0))
    ]
    return f"# Metrics\n\n{about}\n\n{table(('metric', 'kind', 'labels', 'what it says'), rows)}"


def _labels(metric: Metric) -> Iterable[str]:
    return dict.fromkeys(name for sample in metric.samples for name, _ in sample.labels)


def _sample() -> list[Metric]:
    """Return every metric with a number, of two clusters that have one of everything."""
    source, mirror = Address("topic/west/orders"), Address("mirror/east/orders")
    levels = dict.fromkeys(LEVELS, 1.0)
    remote = RemoteVitals(*(1 for _ in RemoteVitals._fields))
    west = Vitals(
        1, 1, [TopicVitals(source, 1, 0, 2, 2, 2, None, remote)], lags=[GroupLag("g", "orders", 1)], levels=levels
    )
    east = Vitals(1, 1, [TopicVitals(mirror, 1, 0, 1, 1, 1, source)])
    link = MirrorLink(metadata=OnCluster(name="twin", cluster="east"), spec=MirrorLinkSpec(source="west"))
    mirrors = [ObservedMirror("east", "orders", "id", "twin", "west", "orders", MirrorStatus.ACTIVE, 1)]
    totals = {(name, "west"): 1.0 for name in (*COUNTER_HELP, "cluster_link_mirror_topic_bytes")}
    measured = [
        ClusterReading("west", west),
        ClusterReading("east", east, links=[ObservedLink(link, "id", LinkStatus.ACTIVE)], mirrors=mirrors),
    ]
    upkeep = PassResult((), (JobOutcome("sweep", "west", 1.0),), 1.0)
    return build_metrics(measured, upkeep, now_ms=1000, totals=totals)


def _environment() -> str:
    parts = ["# Environment variables\n\nThe variables that commands read.\n"]
    for title, rows in ENVIRONMENT.items():
        parts.append(
            f"## {title}\n\n{table(('variable', 'what it does'), ((f'`{name}`', text) for name, text in rows))}"
        )
    return "\n".join([*parts, f"## Of others\n\n{_ABOUT_ENVIRONMENT}"])


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = tuple(head)
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
