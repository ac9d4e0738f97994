"""Import Terraform and OpenTofu states, or the output of `terraform show -json`.

Resources of the providers Mongey/kafka, redpanda-data/redpanda and confluentinc/confluent are imported. Configurations
(`*.tf`) are not evaluated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from reconciler.errors import UserError
from reconciler.importers import terraform_confluent
from reconciler.importers.base import (
    NO_CLIENT_QUOTA,
    NO_CREDENTIALS,
    PLACEMENT,
    Fields,
    ImportedTopic,
    NotImported,
    SourcePlace,
    SourceReading,
    SourceRule,
    build_files_error,
    read_text,
)
from reconciler.manifests.files import build_label, read_bounded
from reconciler.manifests.positions import Problem

DECLARED: Final = (".tf", ".tofu")
STATE: Final = ".tfstate"
_KAFKA_KINDS: Final = frozenset(
    {"kafka_topic", "kafka_acl", "kafka_quota", "kafka_quota_composite", "kafka_user_scram_credential"}
)
_CONFLUENT_KINDS: Final = terraform_confluent.KINDS | {"confluent_kafka_topic", "confluent_kafka_acl"}
KINDS: Final = _KAFKA_KINDS | {"redpanda_topic", "redpanda_acl"} | _CONFLUENT_KINDS
VERSION: Final = 4
_MANAGED: Final = "managed"
_DEPOSED: Final = "it is deposed: another one is in its place, and the next apply there deletes it"
_DEFAULT: Final = "kafka"
_PROVIDER: Final = re.compile(r'(?:module\.(.+)\.)?provider\["[^"]*"\](?:\.([A-Za-z0-9_-]+))?$')
_LIKE: Final = re.compile("kafka|confluent|redpanda")
"""Resource types of unsupported Kafka providers, reported as not imported."""
_REDPANDA: Final = "redpanda"
_AROUND_HOST: Final = re.compile(r"^https?://|(:\d+)?/*$")
"""Scheme and port of a `cluster_api_url`, which some versions omit."""
_NO_ALIAS: Final = "`terraform show -json` does not name it: topics of several clusters would come out as those of one"
_PULL: Final = "Where there are several clusters, import the output of: terraform state pull > terraform.tfstate"
_PULL_AGAIN: Final = "Write it again: terraform state pull > terraform.tfstate"
_EXPORT: Final = "Write what the cluster has: reconciler export"


class _ResourceInstance(NamedTuple):
    at: Fields
    kind: str
    attributes_key: str
    cluster: str
    is_deposed: bool


def import_terraform(path: Path, files: tuple[Path, ...], cwd: Path, reading: SourceReading) -> bool:
    """Import Terraform states; return whether any file was a state."""
    declared = [file for file in files if file.suffix in DECLARED]
    own = [file for file in files if file not in declared and (file == path or is_state(file))]
    if declared and not own:
        message = f"{build_label(declared[0], cwd)} contains Terraform declarations, which are not evaluated"
        hint = "Run there: terraform state pull > terraform.tfstate (or terraform show -json > terraform.json)"
        raise UserError(f"{message}, and there is no state file next to it", hint=f"{hint}. Then import that file.")
    states: dict[str, str] = {}
    for file in own:
        label = build_label(file, cwd)
        if state := _import_state(read_text(file, cwd), label, reading):
            states.setdefault(state, label)
    terraform_confluent.join_clusters(reading)
    if len(states) > 1:
        one, other, *_ = states.values()
        message = f"{one} and {other} are different states, and may describe different clusters"
        raise UserError(message, hint=f"Import one at a time: --from terraform {one}")
    reading.files = [build_label(file, cwd) for file in own]
    reading.unread = [build_label(file, cwd) for file in declared]
    return bool(own)


def is_state(file: Path) -> bool:
    """Return whether a file is a state, even an invalid one."""
    if file.suffix == STATE:
        return True
    raw = read_bounded(file, file.name)
    return file.suffix == ".json" and not isinstance(raw, Problem) and _is_state_content(raw)


def _is_state_content(raw: bytes) -> bool:
    content = _parse_json(raw)
    return isinstance(content, dict) and bool({"terraform_version", "format_version"} & content.keys())


def _import_state(raw: bytes, label: str, reading: SourceReading) -> str:
    content = _parse_state(raw, label)
    is_shown = "version" not in content
    whole = Fields(content, reading, lambda _: SourcePlace(label), subject="state")
    instances = _list_shown_instances(whole) if is_shown else _list_instances(whole)
    kinds = set()
    for instance in instances:
        if _import_instance(instance, SourcePlace(label), reading):
            kinds.add(instance.kind)
    if is_shown and kinds & _KAFKA_KINDS:
        reading.lost.append(
            NotImported(SourcePlace(label), "provider alias", "", _NO_ALIAS, _PULL, is_expressible=False)
        )
    return str(content.get("lineage") or label) if kinds else ""


def _import_instance(instance: _ResourceInstance, place: SourcePlace, reading: SourceReading) -> bool:
    at = instance.at
    if instance.kind not in KINDS:
        at.report_inexpressible("", f"resources of the kind {instance.kind} are not read", _EXPORT)
        return False
    if instance.is_deposed:
        at.report_inexpressible("", _DEPOSED)
    elif at.content.get(instance.attributes_key) is None:
        at.report_lost("", f"it has no {instance.attributes_key}", _PULL_AGAIN)
    elif attributes := at.read_mapping(instance.attributes_key):
        fields = Fields(attributes.content, reading, lambda _: place, subject=at.subject)
        _import_resource(instance.kind, fields, instance.cluster)
    return instance.kind != terraform_confluent.CLUSTER_DATA


def _parse_state(raw: bytes, label: str) -> dict[str, Any]:
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        line, why = getattr(error, "lineno", None), "a number in it has too many digits"
        if isinstance(error, RecursionError):
            why = "it is nested too deeply"
        message = f"is not JSON that can be read: {getattr(error, 'msg', why)}"
        raise build_files_error(
            [Problem(label, line, getattr(error, "colno", None), "", message, _PULL_AGAIN)]
        ) from error
    if not isinstance(content, dict) or not _is_state_content(raw):
        hint = "Name a terraform.tfstate, or what `terraform show -json` printed"
        raise build_files_error([Problem(label, None, None, "", "is not a Terraform state", hint)])
    if "resource_changes" in content or "planned_values" in content:
        hint = "Name what `terraform show -json` prints without the name of a plan: the state"
        raise build_files_error([Problem(label, None, None, "", "is a plan of Terraform, no state", hint)])
    if content.get("version", VERSION) != VERSION:
        hint = "Terraform 0.12 or newer writes it so: terraform state pull > terraform.tfstate"
        message = f"is a state of version {content['version']}, and version {VERSION} is read"
        raise build_files_error([Problem(label, None, None, "", message, hint)])
    return content


def _parse_json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _list_instances(whole: Fields) -> Iterator[_ResourceInstance]:
    for resource in whole.iterate_mappings("resources"):
        if (kind := _read_kind(resource)) is None:
            continue
        module = resource.content.get("module")
        resource.subject = f"{f'{module}.' if isinstance(module, str) else ''}{kind}.{resource.content.get('name')}"
        cluster = _parse_cluster(str(resource.content.get("provider", "")))
        for instance in resource.iterate_mappings("instances"):
            attributes_key = instance.content.get("index_key")
            instance.subject += "" if attributes_key is None else f"[{json.dumps(attributes_key)}]"
            yield _ResourceInstance(instance, kind, "attributes", cluster, is_deposed="deposed" in instance.content)


def _list_shown_instances(whole: Fields) -> Iterator[_ResourceInstance]:
    values = whole.read_mapping("values")
    root = values.read_mapping("root_module") if values is not None else None
    waiting = [root] if root is not None else []
    while waiting:
        module = waiting.pop(0)
        for resource in module.iterate_mappings("resources"):
            if (kind := _read_kind(resource)) is not None:
                resource.subject = str(resource.content.get("address", kind))
                yield _ResourceInstance(
                    resource, kind, "values", _DEFAULT, is_deposed="deposed_key" in resource.content
                )
        waiting += module.iterate_mappings("child_modules")


def _read_kind(resource: Fields) -> str | None:
    kind = str(resource.content.get("type"))
    if resource.content.get("mode", _MANAGED) != _MANAGED:
        return terraform_confluent.CLUSTER_DATA if kind == terraform_confluent.CLUSTER else None
    return kind if kind in KINDS or _LIKE.search(kind) else None


def _parse_cluster(provider: str) -> str:
    match = _PROVIDER.match(provider)
    return "/".join(part for part in match.groups() if part) if match and any(match.groups()) else _DEFAULT


def _import_resource(kind: str, fields: Fields, cluster: str) -> None:
    fields.ignore_keys("id", "timeouts")
    match kind:
        case "kafka_topic":
            _import_topic(fields, cluster)
        case "kafka_acl":
            _import_rule(fields, cluster, prefix="acl_", pattern="resource_pattern_type_filter")
        case "redpanda_topic":
            fields.report_inexpressible("replica_assignments", PLACEMENT)
            is_protected = not fields.read_flag("allow_deletion")
            _import_topic(
                fields, _read_redpanda_cluster(fields), "partition_count", "configuration", is_protected=is_protected
            )
        case "redpanda_acl":
            fields.ignore_keys("allow_deletion")
            _import_rule(fields, _read_redpanda_cluster(fields), prefix="", pattern="resource_pattern_type")
        case "confluent_kafka_topic":
            cluster = terraform_confluent.read_cluster(fields)
            _import_topic(fields, cluster, "partitions_count", name="topic_name")
        case "confluent_kafka_acl":
            cluster = terraform_confluent.read_cluster(fields)
            _import_rule(fields, cluster, prefix="", pattern="pattern_type", permission="permission")
        case _ if kind in terraform_confluent.KINDS:
            terraform_confluent.import_resource(kind, fields)
        case "kafka_user_scram_credential":
            fields.report_inexpressible("", NO_CREDENTIALS)
            return
        case _:
            fields.report_inexpressible("", NO_CLIENT_QUOTA)
            return
    fields.report_unread()


def _read_redpanda_cluster(fields: Fields) -> str:
    cluster = _AROUND_HOST.sub("", fields.read_text("cluster_api_url") or "")
    fields.reading.platforms[cluster] = _REDPANDA
    return cluster


def _import_topic(
    fields: Fields,
    cluster: str,
    partitions: str = "partitions",
    configs: str = "config",
    *,
    name: str = "name",
    is_protected: bool = False,
) -> None:
    topic = ImportedTopic(
        name=fields.read_text(name) or "",
        place=fields.place,
        cluster=cluster,
        partitions=fields.read_number(partitions),
        replication_factor=fields.read_number("replication_factor"),
        configs=fields.read_values(configs),
        is_protected=is_protected,
    )
    fields.reading.topics.append(topic)


def _import_rule(
    fields: Fields, cluster: str, *, prefix: str, pattern: str, permission: str = "permission_type"
) -> None:
    SourceRule(
        resource=fields.read_text("resource_type"),
        name=fields.read_text("resource_name"),
        pattern=fields.read_text(pattern),
        principal=fields.read_text(f"{prefix}principal"),
        permission=fields.read_text(f"{prefix}{permission}"),
        host=fields.read_text(f"{prefix}host"),
        operations=fields.read_texts(f"{prefix}operation"),
        cluster=cluster,
    ).add_to(fields)
