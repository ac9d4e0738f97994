"""The entry point of the command line."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NoReturn

from reconciler.cli import signals

_GC_THRESHOLD: Final = 1_000_000
"""Allocations between garbage collections; Python's default of 700 costs a tenth of a plan's time."""
_WINDOWS_MESSAGE: Final = "Error: reconciler runs on Linux and macOS; on Windows, run it inside WSL\n"


def run_process() -> NoReturn:
    """Run the command line of this process, and end it.

    The memory of a plan is left to the operating system: freeing it object by object takes a sixth of a plan's time.
    With threads to wait for, or output that cannot be written, the process ends as usual.
    """
    code = main()
    with suppress(OSError, ValueError):
        atexit._run_exitfuncs()  # noqa: SLF001 - `os._exit` would skip them
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        if all(thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
            os._exit(code)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; return its exit code. Never raises."""
    try:
        import fcntl  # noqa: F401 - absent on Windows; a state in a folder needs file locks
    except ImportError:
        sys.stderr.write(_WINDOWS_MESSAGE)
        return 1
    words = sys.argv[1:] if arguments is None else list(arguments)
    is_verbose = "--verbose" in words
    gc.set_threshold(_GC_THRESHOLD)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # Else it searches all installed packages for some.
    signals.install_handlers()
    code = _run_for_code(words, is_verbose=is_verbose)
    if is_verbose:
        from reconciler.cli.environment import log_event, stop_logging

        log_event("ended", exit_code=code)
        stop_logging()
    signals.exit_if_hanging(code)
    return code


def _run_for_code(words: list[str], *, is_verbose: bool) -> int:
    try:
        return _run_command(words)
    except SystemExit as leaving:
        return _read_exit_code(leaving)
    except BaseException as error:  # noqa: BLE001 - every error gets an exit code here
        from reconciler.cli.errors import find_usage_error, report_error

        code, format_warning = report_error(error, is_verbose=is_verbose), find_usage_error(error)
        if format_warning is not None and any(word.startswith(("--report", "--format")) for word in words):
            from reconciler.cli.reports import report_usage_error

            report_usage_error(words, *format_warning)
        return code


def _run_command(arguments: list[str]) -> int:
    from reconciler.cli.app import build_root_command
    from reconciler.cli.console import prepare_streams
    from reconciler.cli.hint_rewrite import forget_typed_options

    prepare_streams()
    forget_typed_options()

    def run() -> int:
        code = build_root_command().main(arguments, prog_name="reconciler", standalone_mode=False)
        return code if isinstance(code, int) else 0

    if "_RECONCILER_COMPLETE" in os.environ:
        from reconciler.cli.completion import is_completing, print_completions

        return print_completions(run) if is_completing() else run()
    return run()


def _read_exit_code(leaving: SystemExit) -> int:
    if isinstance(leaving.__context__, BrokenPipeError):
        return 0
    return leaving.code if isinstance(leaving.code, int) else 0


if __name__ == "__main__":
    run_process()
