"""Which reconciler this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def tool_version() -> str:
    """Return the installed version; a source tree that was never installed has none."""
    try:
        return version("stream-reconciler")
    except PackageNotFoundError:
        return "0.0.0"


def version_line() -> str:
    """Return what `--version` prints."""
    return f"reconciler {tool_version()}"
