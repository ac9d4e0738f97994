"""The version of the package, and where the project is published."""

from typing import Final

__version__ = "0.1.0"
__home__: Final = "https://github.com/stream-reconciler/reconciler"
"""Where the project will be public; nothing is there yet. `pyproject.toml` names it, too."""
__site__: Final = "https://stream-reconciler.github.io/reconciler"
"""Where its documentation will be, each version in a folder of its own."""
