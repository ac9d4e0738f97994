"""The command `comment`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Argument, Option

from reconciler.cli.options import ForgeOptions, TextOrJson, VerbosityOptions, expand_bundles
from reconciler.cli.present import print_result
from reconciler.cli.text.lines import Line, Span, Tone, make_line
from reconciler.errors import UsageError
from reconciler.runtime.text import pluralize

if TYPE_CHECKING:
    from reconciler.operations.comment import CommentResult, Did


@expand_bundles
def comment_command(
    at: ForgeOptions,
    place: VerbosityOptions,
    file: Annotated[
        Path | None,
        Argument(
            metavar="FILE",
            help="Output of `--format markdown`; - is standard input.",
            allow_dash=True,
            show_default=False,
        ),
    ] = None,
    failed: Annotated[
        str | None,
        Option(
            "--failed",
            metavar="WHY",
            help="Instead of FILE: report that planning failed, and why, and replace an older comment.",
            show_default=False,
        ),
    ] = None,
    workspace: Annotated[
        Path | None,
        Option(metavar="DIR", help="With --failed: the workspace whose plan failed.", show_default=False),
    ] = None,
    environment: Annotated[
        str | None,
        Option("--environment", "-e", metavar="ENV", help="With --failed: its environment.", show_default=False),
    ] = None,
    page: Annotated[
        str | None,
        Option(metavar="URL", help="URL of the plan as a page; the comment links to it.", show_default=False),
    ] = None,
    delete_when_empty: Annotated[
        bool, Option("--delete-when-empty", help="If nothing is reported, delete the comment.")
    ] = False,
    labels: Annotated[
        bool, Option("--labels", help="Label the pull request with its most serious result, as 'plan: blocked'.")
    ] = False,
    pull_request: Annotated[
        int | None,
        Option("--pull-request", metavar="N", min=1, help="By default that of the pipeline.", show_default=False),
    ] = None,
    form: TextOrJson = "text",
) -> None:
    """Write a result as a comment of its pull request. A later run edits the same comment.

    Each workspace and environment has its own comment. The runners of GitHub, GitLab, Gitea and Forgejo set the forge,
    the repository and the pull request; the token is GITHUB_TOKEN, GITLAB_TOKEN or GITEA_TOKEN.
    """
    from reconciler.operations.comment import write_comment

    if (file is None) == (failed is None):
        raise UsageError("comment takes FILE or --failed WHY", hint="Write it as: reconciler comment plan.md")
    if failed is None and (workspace is not None or environment is not None):
        raise UsageError("FILE already contains the workspace", hint="Leave out --workspace and --environment.")
    request = at.build_forge_request(pull_request)
    if failed is not None:
        from reconciler.cli.options import WorkspaceOptions
        from reconciler.cli.reports import format_plan_failure

        invocation = WorkspaceOptions(workspace=workspace, verbose=place.verbose).read_invocation()
        text = format_plan_failure(failed, invocation, environment)
    else:
        invocation = place.read_invocation()
        text = _read_text(invocation.cwd / str(file), Path(str(file)))
        if page is not None:
            if not re.fullmatch(r"https?://[^\s()<>]+", page):
                raise UsageError(f"--page takes a URL, not {page!r}", hint="Write it as: --page https://…")
            text = f"{text}\n[The plan as a page]({page})\n"
    commented = write_comment(invocation, text, request, deletes_empty=delete_when_empty, labels=labels)
    from reconciler.cli.json.checks_json import COMMENT

    print_result(form, lambda: _format_comment_result(commented), lambda: COMMENT.build_row(commented))


_MOST_BYTES: Final = 64 << 20


def _read_text(path: Path, named: Path) -> str:
    from reconciler.cli.console import open_binary_stdin

    try:
        if str(named) == "-":
            raw = open_binary_stdin().read(_MOST_BYTES + 1)
        else:
            with path.open("rb") as file:
                raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise UsageError(
                f"{named} is longer than a comment can be", hint="Give a file with the output of --format markdown."
            )
        return raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
        message = f"{named} cannot be read: {why}"
        raise UsageError(
            message, hint="Give a file with the output of --format markdown, or - for standard input."
        ) from error


_RESULT_WORDS: Final[dict[Did, str]] = {
    "created": "Wrote a comment",
    "updated": "Updated the comment",
    "unchanged": "The comment is up to date",
    "deleted": "Nothing to report: deleted the comment",
    "none": "Nothing to report: wrote no comment",
}


def _format_comment_result(commented: CommentResult) -> list[Line]:
    place = f"on pull request {commented.number} of {commented.forge}"
    lines = [make_line(Span(_RESULT_WORDS[commented.did], Tone.STRONG), f" {place}")]
    if commented.comment is not None and commented.comment.url:
        lines.append(make_line("  ", commented.comment.url))
    if commented.collapsed:
        lines.append(make_line("  ", f"hid {pluralize(commented.collapsed, 'older comment')}"))
    if commented.is_cut:
        lines.append(make_line("  ", "the text was too long: the comment has as much of it as fits"))
    return lines
