"""Bindings on the wire: all of them read in one request, many made or taken away in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from reconciler.resources.bindings import Binding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.providers.kafka.client import KafkaClient

# Only who connects pays for the library.

_ANY: Final = 1
_LITERAL, _PREFIXED = 3, 4

_RESOURCES: Final[Mapping[int, str]] = {
    2: "topics",
    3: "groups",
    4: "cluster",
    5: "transactional-ids",
    6: "delegation-token",
    7: "user",
}
_OPERATIONS: Final[Mapping[int, str]] = {
    2: "all",
    3: "read",
    4: "write",
    5: "create",
    6: "delete",
    7: "alter",
    8: "describe",
    9: "cluster-action",
    10: "describe-configs",
    11: "alter-configs",
    12: "idempotent-write",
    13: "create-tokens",
    14: "describe-tokens",
    15: "two-phase-commit",
}
_PERMISSIONS: Final[Mapping[int, str]] = {2: "deny", 3: "allow"}


def _codes(words: Mapping[int, str]) -> dict[str, int]:
    return {word: code for code, word in words.items()}


_RESOURCE_CODES, _OPERATION_CODES, _PERMISSION_CODES = _codes(_RESOURCES), _codes(_OPERATIONS), _codes(_PERMISSIONS)


def read_bindings(client: KafkaClient) -> tuple[list[Binding], int]:
    """Return every binding, or the code of why they cannot be read."""
    answer = _described(client)
    found = [
        Binding(
            _RESOURCES.get(resource.resource_type, "unknown"),
            resource.resource_name,
            resource.pattern_type == _PREFIXED,
            each.principal,
            each.host,
            _OPERATIONS.get(each.operation, "unknown"),
            _PERMISSIONS.get(each.permission_type, "unknown"),
        )
        for resource in answer.resources
        for each in resource.acls
    ]
    return found, answer.error_code


def _described(client: KafkaClient) -> Any:
    from kafka.protocol.admin import DescribeAclsRequest

    request = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
        min_version=1,
    )
    return client.send(request, doing="reading access rules")


def create_bindings(client: KafkaClient, bindings: Sequence[Binding]) -> list[tuple[int, str]]:
    """Make bindings and return a code and a message for each, in their order; one that is there stays."""
    from kafka.protocol.admin import CreateAclsRequest

    made = [
        CreateAclsRequest.AclCreation(
            resource_type=_RESOURCE_CODES[each.resource],
            resource_name=each.name,
            resource_pattern_type=_PREFIXED if each.is_prefix else _LITERAL,
            principal=each.principal,
            host=each.host,
            operation=_OPERATION_CODES[each.operation],
            permission_type=_PERMISSION_CODES[each.permission],
        )
        for each in bindings
    ]
    answer = client.send(CreateAclsRequest(creations=made, min_version=1), doing="making access rules")
    return [(each.error_code, each.error_message or "") for each in answer.results]


def delete_bindings(client: KafkaClient, bindings: Sequence[Binding]) -> list[tuple[int, str]]:
    """Take bindings away and return a code and a message for each, in their order; one that is not there is gone."""
    from kafka.protocol.admin import DeleteAclsRequest

    filters: list[Any] = [
        DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=_RESOURCE_CODES[each.resource],
            resource_name_filter=each.name,
            pattern_type_filter=_PREFIXED if each.is_prefix else _LITERAL,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=_OPERATION_CODES[each.operation],
            permission_type=_PERMISSION_CODES[each.permission],
        )
        for each in bindings
    ]
    answer = client.send(DeleteAclsRequest(filters=filters, min_version=1), doing="taking access rules away")
    return [(each.error_code, each.error_message or "") for each in answer.filter_results]
