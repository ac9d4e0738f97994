"""The package's version, home page and documentation site."""

from typing import Final

__version__ = "0.1.0"
__home__: Final = "https://github.com/stream-reconciler/reconciler"
"""Planned home page, also in `pyproject.toml`."""
__site__: Final = "https://stream-reconciler.github.io/reconciler"
"""Planned documentation site, with a folder per version."""
