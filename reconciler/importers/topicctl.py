"""Import topicctl documents."""

from __future__ import annotations

from typing import Any, Final

from reconciler.importers.base import (
    NO_CREDENTIALS,
    NO_TEXT,
    OF_THE_TOOL,
    PLACEMENT,
    Document,
    Fields,
    ImportedCluster,
    ImportedTopic,
    Reading,
    Sasl,
    SourceRule,
    SourceValue,
    Tls,
    security_of,
)

_RETENTION: Final = "retention.ms"
_MS_PER_MINUTE: Final = 60_000
_ANYWHERE: Final = "any"
_KINDS: Final = (
    ("cluster", "bootstrapAddrs"),
    ("topic", "partitions"),
    ("acl", "acls"),
    ("user", "authentication"),
    ("user", "mechanism"),
)


def claims(content: Any) -> bool:
    """Return whether a document is topicctl's."""
    return isinstance(content, dict) and "apiVersion" not in content and _kind_of(content) is not None


def read(documents: tuple[Document, ...], reading: Reading) -> None:
    """Read the documents."""
    for document in documents:
        kind = _kind_of(document.content)
        name = _name_of(document.content)
        fields = Fields(document.content, reading, document.locate, subject=f"{kind} {name}".strip())
        match kind:
            case "cluster":
                _import_cluster(fields)
            case "topic":
                _import_topic(fields)
            case "acl":
                _take_rules(fields)
            case _:
                fields.unsaid("", NO_CREDENTIALS)
                fields.ignore_keys("meta", "spec")
        fields.rest()


def _kind_of(content: dict[str, Any]) -> str | None:
    meta, spec = content.get("meta"), content.get("spec")
    if not isinstance(meta, dict) or not isinstance(spec, dict):
        return None
    return next((kind for kind, key in _KINDS if key in spec), None)


def _name_of(content: dict[str, Any]) -> str:
    name = content["meta"].get("name")
    return name if type(name) is str else ""


def _read_meta(fields: Fields) -> tuple[str, str, dict[str, str]]:
    """Read name, cluster and labels; region and environment are ignored."""
    meta = fields.inside("meta")
    if meta is None:
        return "", "", {}
    meta.unsaid("description", NO_TEXT)
    meta.unsaid("consumers", NO_TEXT)
    for key in ("region", "environment"):
        meta.unsaid(key, OF_THE_TOOL)
    values = meta.text("name") or "", meta.text("cluster") or "", meta.labels("labels")
    meta.rest(is_left_out=False)
    return values


def _import_topic(fields: Fields) -> None:
    is_named = fields.is_named("meta")
    name, cluster, labels = _read_meta(fields)
    spec = fields.inside("spec")
    if spec is None:
        return
    configs = _configs(spec)
    placement = spec.inside("placement")
    if placement is not None and placement.text("strategy") not in {None, _ANYWHERE}:
        placement.unsaid("strategy", PLACEMENT)
    spec.unsaid("migration", OF_THE_TOOL)
    topic = ImportedTopic(
        name=name,
        place=fields.place,
        cluster=cluster,
        partitions=spec.number("partitions"),
        replication_factor=spec.number("replicationFactor"),
        configs=configs,
        labels=labels,
    )
    if is_named:
        fields.reading.topics.append(topic)
    spec.rest()


def _configs(spec: Fields) -> dict[str, SourceValue]:
    """Read the settings; a retention given twice with different values is not imported."""
    configs = spec.said("settings")
    minutes = spec.number("retentionMinutes")
    if minutes is None or minutes <= 0:
        return configs
    retention = SourceValue(minutes * _MS_PER_MINUTE, spec.of("retentionMinutes"))
    other = configs.setdefault(_RETENTION, retention)
    if str(other.value) != str(retention.value):
        del configs[_RETENTION]
        why = f"is {retention.value:,} ms, and settings.{_RETENTION} says {other.value}: both are left out"
        spec.lost("retentionMinutes", why, "Keep the one that is right: topicctl refuses both together.")
    return configs


def _take_rules(fields: Fields) -> None:
    _, cluster, _ = _read_meta(fields)
    spec = fields.inside("spec")
    for entry in spec.each("acls") if spec is not None else ():
        resource = entry.inside("resource")
        if resource is None:
            entry.lost("", "it names no resource")
            continue
        SourceRule(
            resource=resource.text("type"),
            name=resource.text("name"),
            pattern=resource.text("patternType"),
            principal=resource.text("principal"),
            host=resource.text("host"),
            permission=resource.text("permission"),
            operations=entry.texts("operations"),
            cluster=cluster,
        ).add_to(entry)
        resource.rest()
        entry.rest()
    if spec is not None:
        spec.rest()


def _import_cluster(fields: Fields) -> None:
    name, _, _ = _read_meta(fields)
    spec = fields.inside("spec")
    if spec is None:
        return
    for key in ("zkAddrs", "zkPrefix", "zkLockPath", "versionMajor", "defaultThrottleMB"):
        spec.unsaid(key, OF_THE_TOOL)
    spec.unsaid("defaultRetentionDropStepDuration", OF_THE_TOOL)
    cluster = ImportedCluster(
        name=name,
        place=fields.place,
        bootstrap_servers=spec.texts("bootstrapAddrs"),
        cluster_id=spec.text("clusterID"),
        security=security_of(spec, _tls(spec.inside("tls")), _sasl(spec.inside("sasl"))),
    )
    fields.reading.clusters.append(cluster)
    spec.rest()


def _tls(tls: Fields | None) -> Tls | None:
    if tls is None or not tls.flag("enabled"):
        return None
    if tls.flag("skipVerify"):
        tls.unsaid("skipVerify", "certificates are always verified", "Give the CA's certificate as security.caFile.")
    tls.unsaid("serverName", "the TLS server name is always the host name of the broker")
    settings = Tls(ca_file=tls.text("caCertPath"), cert_file=tls.text("certPath"), key_file=tls.text("keyPath"))
    tls.rest()
    return settings


def _sasl(sasl: Fields | None) -> Sasl | None:
    if sasl is None or not sasl.flag("enabled"):
        return None
    sasl.ignore_keys("password")  # secret: a reference is used instead
    sasl.unsaid(
        "secretsManagerArn", "secrets are read from the environment or a file", "Set what security.password names."
    )
    settings = Sasl(mechanism=sasl.text("mechanism"), username=sasl.text("username"))
    sasl.rest()
    return settings
