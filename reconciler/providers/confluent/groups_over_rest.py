"""Consumer groups by REST, of a cluster without declared brokers: their names, states and lags (confluent.md, 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from reconciler.errors import NotAuthorizedError
from reconciler.providers.brokers.groups import GroupDescription, KafkaGroups
from reconciler.resources.groups import GroupOffset
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.providers.brokers.offsets import Place
    from reconciler.providers.confluent.client import Json, RestClient
    from reconciler.providers.confluent.kafka_over_rest import RestKafkaClient


@dataclass(frozen=True, slots=True)
class RestGroups(KafkaGroups):
    """Groups that are listed and described by REST; everything else needs brokers, and raises."""

    client: RestKafkaClient

    @property
    def _rest(self) -> RestClient:
        return self.client.rest

    def _read_states(self) -> dict[str, GroupDescription]:
        # The API writes Kafka's words in capitals.
        return {
            str(row["consumer_group_id"]): GroupDescription(
                str(row.get("state") or "").capitalize(), str(row.get("type") or "").lower()
            )
            for row in self._rest.list_rows("consumer-groups")
        }

    def _read_all_offsets(self, states: Mapping[str, GroupDescription]) -> dict[str, dict[Place, Any]]:
        try:
            return {name: self._read_lags(name) for name in states}
        except NotAuthorizedError as error:
            message = f"{error.message}. Confluent Cloud reports lags by REST of Dedicated clusters only"
            raise NotAuthorizedError(message, hint=self.client.build_missing_brokers_error().hint) from error

    def _read_lags(self, group: str) -> dict[Place, Json]:
        rows = self._rest.list_rows("consumer-groups", group, "lags")
        return {(str(row["topic_name"]), int(row["partition_id"])): row for row in rows}

    def _build_rows(self, places: Iterable[Place], committed: Mapping[Place, Any]) -> list[GroupOffset]:
        rows = []
        for name, partition in sorted(places):
            row = committed[name, partition]
            end = int(row["log_end_offset"])
            # The API does not report where a partition begins.
            rows.append(GroupOffset(self.naming.to_full_name(name), partition, int(row["current_offset"]), 0, end, end))
        return rows
