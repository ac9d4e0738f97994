"""Which reconciler this is."""

from __future__ import annotations

from reconciler import __version__


def tool_version() -> str:
    """Return our version."""
    return __version__


def version_line() -> str:
    """Return what `--version` prints."""
    return f"reconciler {tool_version()}"
