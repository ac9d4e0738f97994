"""Whether the clients of Kafka are here: an installation without them manages other platforms."""

from __future__ import annotations

from importlib.util import find_spec

from reconciler.errors import UserError


def check_installed(*, cluster: str) -> None:
    """Return if both client libraries can be imported.

    Raises:
        UserError: One is not installed.
    """
    missing = [name for name, module in _CLIENTS.items() if find_spec(module) is None]
    if missing:
        message = f"cluster {cluster}: Apache Kafka needs {' and '.join(missing)}, not installed here"
        raise UserError(message, hint="Install it: pip install 'stream-reconciler[kafka]'.")


_CLIENTS = {"kafka-python": "kafka", "confluent-kafka": "confluent_kafka"}
