"""`man`: a page for each command, made from what the command line says of itself."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from typer import Argument, Option

from reconciler.cli.app import COMMANDS, SETTINGS, Entry, root
from reconciler.cli.console import out
from reconciler.cli.environment import tool_version
from reconciler.cli.options import bundled
from reconciler.cli.text.lines import line
from reconciler.errors import UsageError
from reconciler.runtime.text import counted, did_you_mean, nearest


@bundled
def man_command(
    command: Annotated[
        list[str] | None,
        Argument(
            metavar="COMMAND...", help="Whose page, such as: state unlock. By default all commands.", show_default=False
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        Option("--out", "-o", metavar="DIR", help="Write every page here, for man's own folders.", show_default=False),
    ] = None,
) -> None:
    """Show the manual page of a command: with `man` on a terminal; in a pipe as it is written for `man` (roff)."""
    pages = {page.path: page for page in _pages()}
    path = ("reconciler", *(command or ()))
    if path not in pages:
        known = [" ".join(each[1:]) for each in pages if len(each) > 1]
        near = did_you_mean(nearest(" ".join(path[1:]), known), otherwise="See: reconciler man")
        raise UsageError(f"there is no command '{' '.join(path[1:])}'", hint=near)
    if folder is not None:
        _write(folder, {page.file: page.roff() for page in pages.values()})
    elif not out().is_terminal:
        out().write_bytes(pages[path].roff().encode())
    elif not _shown(pages[path].roff()):
        out().write(f"{pages[path].help()}\n")


def _write(folder: Path, pages: Mapping[str, str]) -> None:
    from reconciler.cli.output_files import check_folder, check_name, checked_output
    from reconciler.objectstore.directory import write_whole

    check_name("--out", folder)
    check_folder("--out", folder)
    paths = {name: checked_output("--out", folder / name, "a manual page") for name in pages}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        write_whole(paths[name], text.encode())
    out().show([line(f"Wrote {counted(len(pages), 'page')} into {folder}")])


def _shown(roff: str) -> bool:
    """Tell whether `man` showed a page; it brings its own pager."""
    man = shutil.which("man")
    if man is None:
        return False
    # From a pipe, so that no file is left where man is ended.
    return subprocess.run([man, "-l", "-"], input=roff.encode(), check=False).returncode == 0  # noqa: S603 - our own page


# The pages, one for each command and group.


class _Page(NamedTuple):
    """One page of section 1."""

    path: tuple[str, ...]
    summary: str
    command: Any
    entries: Sequence[Entry]
    """Of a group, what it holds."""

    @property
    def name(self) -> str:
        """What `man` finds it by: `reconciler-state-unlock`."""
        return "-".join(self.path)

    @property
    def file(self) -> str:
        """Its file, as man's folders name it."""
        return f"{self.name}.1"

    def roff(self) -> str:
        """Return the page as `man` reads it."""
        parts = [
            f'.TH {_text(self.name.upper())} 1 "" "reconciler {_text(tool_version())}" "reconciler"',
            ".SH NAME",
            f"{_text(self.name)} \\- {_prose(self.summary)}",
            ".SH SYNOPSIS",
            *self._synopsis(),
            ".SH DESCRIPTION",
            *_paragraphs(self.command.help or ""),
            *self._parameters("ARGUMENTS", is_option=False),
            *self._parameters("OPTIONS", is_option=True),
            *self._commands(),
            *(self._exit_status() if len(self.path) == 1 else ()),
            *self._see_also(),
        ]
        return "\n".join(parts) + "\n"

    def help(self) -> str:
        """Return what `--help` prints, where there is no `man`."""
        found: str = self.command.get_help(self._context)
        return found

    @property
    def _context(self) -> Any:
        return self.command.context_class(self.command, info_name=" ".join(self.path), **SETTINGS)

    def _synopsis(self) -> Iterator[str]:
        usage = " ".join(self.command.collect_usage_pieces(self._context))
        yield f"\\fB{_text(' '.join(self.path))}\\fR {_text(usage)}"

    def _parameters(self, title: str, *, is_option: bool) -> Iterator[str]:
        context = self._context
        kinds = [each for each in self.command.get_params(context) if (each.param_type_name == "option") == is_option]
        records = [record for each in kinds if (record := each.get_help_record(context)) is not None]
        if records:
            yield f".SH {title}"
        for names, said in records:
            yield ".TP"
            yield f"\\fB{_text(names)}\\fR"
            yield _prose(said) or "\\&"

    def _commands(self) -> Iterator[str]:
        if self.entries:
            yield ".SH COMMANDS"
        for entry in self.entries:
            yield ".TP"
            yield f"\\fB{_text('-'.join((*self.path, entry.name)))}\\fR(1)"
            yield _prose(entry.summary)

    def _exit_status(self) -> Iterator[str]:
        yield ".SH EXIT STATUS"
        for code, (meaning, todo) in EXIT_CODES.items():
            yield ".TP"
            yield f"\\fB{code}\\fR"
            yield _prose(f"{meaning} {todo}")

    def _see_also(self) -> Iterator[str]:
        if len(self.path) > 1:
            yield ".SH SEE ALSO"
            yield f"\\fB{_text('-'.join(self.path[:-1]))}\\fR(1)"


def _pages() -> Iterator[_Page]:
    program = root()
    summary = "plan and apply for streaming platforms: topics, namespaces and mirrors as YAML in git"
    yield _Page(("reconciler",), summary, program, COMMANDS)
    yield from _pages_of(program, COMMANDS, ("reconciler",))


def _pages_of(group: Any, entries: Sequence[Entry], path: tuple[str, ...]) -> Iterator[_Page]:
    context = group.context_class(group, info_name=" ".join(path))
    for entry in entries:
        command = group.get_command(context, entry.name)
        yield _Page((*path, entry.name), entry.summary, command, entry.entries)
        yield from _pages_of(command, entry.entries, (*path, entry.name))


# Text as roff takes it.


_CODE: Final = re.compile(r"`([^`]*)`")
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]")


def _text(text: str) -> str:
    """Escape what roff would take for its own: backslashes, quotes, hyphens that are minus signs, other letters."""
    text = (
        text.replace("\\", "\\e").replace('"', "\\(dq").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    )
    return _BEYOND_ASCII.sub(lambda found: f"\\[u{ord(found[0]):04X}]", text)


def _prose(text: str) -> str:
    """Return a sentence in one line, what is typed in bold; a dot that begins it is no request."""
    pieces = _CODE.split(" ".join(text.split()))
    joined = "".join(f"\\fB{_text(piece)}\\fR" if number % 2 else _text(piece) for number, piece in enumerate(pieces))
    return f"\\&{joined}" if joined.startswith(".") else joined


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.strip().split("\n\n")):
        if number:
            yield ".PP"
        yield _prose(paragraph)


# What a command leaves with, for the manual and the reference.


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
    8: ("Some actions failed, the others are done.", "Read which failed, then run the same command again."),
    64: ("The command was called wrongly.", "See `--help`."),
    130: (
        "Interrupted before anything started, or a second time.",
        "Run the command again: it continues as after a crash.",
    ),
}
"""Exit code → what it says, and what to do then."""
