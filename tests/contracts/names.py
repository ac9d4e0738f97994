"""Names that contract tests give to topics, namespaces and groups: on a cluster that others use, with a prefix."""

from __future__ import annotations

import os
import secrets
from typing import Final

EXTERNAL: Final = "CONFORMANCE_REDPANDA"
"""Variable that names a test cluster of the user; see `tests/servers/redpandaexternal.py`."""
EXTERNAL_CONFLUENT: Final = "CONFORMANCE_CONFLUENT"
"""Variable that names two test clusters of the user; see `tests/servers/confluentexternal.py`."""
COMMON_PREFIX: Final = "conformance-"
"""The beginning of the prefixes of all runs on clusters that others use."""
PREFIX: Final = (
    f"{COMMON_PREFIX}{secrets.token_hex(4)}-" if os.environ.get(EXTERNAL) or os.environ.get(EXTERNAL_CONFLUENT) else ""
)


def own(name: str) -> str:
    """Return a name with the prefix of this run; the same name on clusters that a test starts."""
    return f"{PREFIX}{name}"


def is_own(name: str) -> bool:
    """Return whether a name is of this run."""
    return name.startswith(PREFIX)
