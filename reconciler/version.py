"""The version of the package, and where the project is published."""

from typing import Final

__version__ = "0.1.0"
__home__: Final = "https://github.com/stream-reconciler/reconciler"
"""Future home page, as in `pyproject.toml`; not published yet."""
__site__: Final = "https://stream-reconciler.github.io/reconciler"
"""Future documentation site, with a folder per version."""
