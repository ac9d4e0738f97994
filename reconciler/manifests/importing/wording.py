"""Why things of other tools have no place here, said once."""

from __future__ import annotations

from typing import Final

NO_CREDENTIALS: Final = "users and their passwords are not managed here, and secrets are never copied"
NO_CLIENT_QUOTA: Final = "quotas of users and clients are not managed here; they stay on the cluster as they are"
NO_TEXT: Final = "manifests have no field for it"
OF_THE_TOOL: Final = "it belongs to the other tool, and nothing here asks for it"
PLACEMENT: Final = "on which brokers replicas lie is the cluster's to decide; it stays as it is"
NOT_KAFKA: Final = "it is none of Kafka's topics or access rules"
