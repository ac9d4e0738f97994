"""`comment`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Argument, Option

from reconciler.cli.options import Here, TextOrJson, bundled, seconds
from reconciler.cli.present import present
from reconciler.cli.text.lines import Line, Span, Tone, line
from reconciler.errors import UsageError
from reconciler.forges.protocol import Kind
from reconciler.runtime.text import counted

if TYPE_CHECKING:
    from reconciler.operations.comment import Commented, Did


@bundled
def comment_command(
    here: Here,
    file: Annotated[
        Path, Argument(metavar="FILE", help="What `--format markdown` printed; - is standard input.", allow_dash=True)
    ],
    delete_when_empty: Annotated[
        bool, Option("--delete-when-empty", help="Where it reports nothing, delete the comment and write none.")
    ] = False,
    forge: Annotated[
        Kind | None, Option("--forge", help="By default as the pipeline says.", show_default=False)
    ] = None,
    pull_request: Annotated[
        int | None,
        Option("--pull-request", metavar="N", min=1, help="By default the one of this run.", show_default=False),
    ] = None,
    repository: Annotated[
        str | None,
        Option("--repository", metavar="OWNER/NAME", help="By default the one of this run.", show_default=False),
    ] = None,
    timeout: Annotated[
        str, Option("--timeout", metavar="TIME", help="For all of it, with what the forge asks to wait.")
    ] = "2m",
    allow_http: Annotated[
        bool, Option("--allow-http", help="Send the token unencrypted to other hosts than this one.")
    ] = False,
    form: TextOrJson = "text",
) -> None:
    """Write a result into its pull request: one comment for each workspace and environment, which stays one.

    On GitHub, GitLab, Gitea and Forgejo. Where it is, and the token, come from the environment that their runners set:
    GITHUB_TOKEN, GITLAB_TOKEN or GITEA_TOKEN.
    """
    from reconciler.forges.environment import Asked
    from reconciler.operations.comment import comment

    asked = Asked(
        forge=forge,
        repository=repository,
        pull_request=pull_request,
        timeout_s=seconds("--timeout", timeout),
        allows_http=allow_http,
    )
    invocation = here.invocation()
    commented = comment(invocation, _text(invocation.cwd / file, file), asked, deletes_empty=delete_when_empty)
    from reconciler.cli.json.checks_json import CommentDocument

    present(form, lambda: _lines(commented), lambda: CommentDocument.of(commented))


_MOST_BYTES: Final = 64 << 20


def _text(path: Path, named: Path) -> str:
    from reconciler.cli.console import binary_stdin

    try:
        if str(named) == "-":
            raw = binary_stdin().read(_MOST_BYTES + 1)
        else:
            with path.open("rb") as file:
                raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise UsageError(f"{named} is longer than a comment can be", hint="Name what --format markdown printed.")
        return raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else "it is no UTF-8 text"
        message = f"{named} cannot be read: {why}"
        raise UsageError(message, hint="Name what --format markdown printed, or - for standard input.") from error


_SAID: Final[dict[Did, str]] = {
    "created": "Wrote a comment",
    "updated": "Updated the comment",
    "unchanged": "The comment says this already",
    "deleted": "Nothing to report: deleted the comment",
    "none": "Nothing to report: wrote no comment",
}


def _lines(commented: Commented) -> list[Line]:
    place = f"on pull request {commented.number} of {commented.forge}"
    lines = [line(Span(_SAID[commented.did], Tone.STRONG), f" {place}")]
    if commented.comment is not None and commented.comment.url:
        lines.append(line("  ", commented.comment.url))
    if commented.collapsed:
        lines.append(line("  ", f"hid {counted(commented.collapsed, 'older comment')}"))
    if commented.is_cut:
        lines.append(line("  ", "the text was too long: the comment has as much of it as fits"))
    return lines
