"""Plan and apply for streaming platforms."""

__version__ = "0.1.0"
