"""Plan and apply for streaming platforms."""

from typing import Final

__version__: Final = "0.1.0"
