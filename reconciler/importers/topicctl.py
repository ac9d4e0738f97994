"""Import topicctl clusters, topics and access rules."""

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
    SaslLogin,
    SourceReading,
    SourceRule,
    SourceValue,
    TlsFiles,
    build_security,
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


def is_own_document(content: Any) -> bool:
    """Return whether a document looks like a topicctl file."""
    return isinstance(content, dict) and "apiVersion" not in content and _detect_kind(content) is not None


def import_documents(documents: tuple[Document, ...], reading: SourceReading) -> None:
    """Import topicctl documents."""
    for document in documents:
        kind = _detect_kind(document.content)
        name = _read_name(document.content)
        fields = Fields(document.content, reading, document.locate, subject=f"{kind} {name}".strip())
        match kind:
            case "cluster":
                _import_cluster(fields)
            case "topic":
                _import_topic(fields)
            case "acl":
                _import_rules(fields)
            case _:
                fields.report_inexpressible("", NO_CREDENTIALS)
                fields.ignore_keys("meta", "spec")
        fields.report_unread()


def _detect_kind(content: dict[str, Any]) -> str | None:
    meta, spec = content.get("meta"), content.get("spec")
    if not isinstance(meta, dict) or not isinstance(spec, dict):
        return None
    return next((kind for kind, key in _KINDS if key in spec), None)


def _read_name(content: dict[str, Any]) -> str:
    name = content["meta"].get("name")
    return name if type(name) is str else ""


def _read_meta(fields: Fields) -> tuple[str, str, dict[str, str]]:
    meta = fields.read_mapping("meta")
    if meta is None:
        return "", "", {}
    meta.report_inexpressible("description", NO_TEXT)
    meta.report_inexpressible("consumers", NO_TEXT)
    for key in ("region", "environment"):
        meta.report_inexpressible(key, OF_THE_TOOL)
    values = meta.read_text("name") or "", meta.read_text("cluster") or "", meta.read_labels("labels")
    meta.report_unread(is_expressible=False)
    return values


def _import_topic(fields: Fields) -> None:
    has_text_name = fields.has_text_name("meta")
    name, cluster, labels = _read_meta(fields)
    spec = fields.read_mapping("spec")
    if spec is None:
        return
    configs = _read_configs(spec)
    placement = spec.read_mapping("placement")
    if placement is not None and placement.read_text("strategy") not in {None, _ANYWHERE}:
        placement.report_inexpressible("strategy", PLACEMENT)
    spec.report_inexpressible("migration", OF_THE_TOOL)
    topic = ImportedTopic(
        name=name,
        place=fields.place,
        cluster=cluster,
        partitions=spec.read_number("partitions"),
        replication_factor=spec.read_number("replicationFactor"),
        configs=configs,
        labels=labels,
    )
    if has_text_name:
        fields.reading.topics.append(topic)
    spec.report_unread()


def _read_configs(spec: Fields) -> dict[str, SourceValue]:
    configs = spec.read_values("settings")
    minutes = spec.read_number("retentionMinutes")
    if minutes is None or minutes <= 0:
        return configs
    retention = SourceValue(minutes * _MS_PER_MINUTE, spec.locate_key("retentionMinutes"))
    other = configs.setdefault(_RETENTION, retention)
    if str(other.value) != str(retention.value):
        del configs[_RETENTION]
        why = f"is {retention.value:,} ms, and settings.{_RETENTION} says {other.value}: both are left out"
        spec.report_lost("retentionMinutes", why, "Keep the one that is right: topicctl refuses both together.")
    return configs


def _import_rules(fields: Fields) -> None:
    _, cluster, _ = _read_meta(fields)
    spec = fields.read_mapping("spec")
    for entry in spec.iterate_mappings("acls") if spec is not None else ():
        resource = entry.read_mapping("resource")
        if resource is None:
            entry.report_lost("", "it names no resource")
            continue
        SourceRule(
            resource=resource.read_text("type"),
            name=resource.read_text("name"),
            pattern=resource.read_text("patternType"),
            principal=resource.read_text("principal"),
            host=resource.read_text("host"),
            permission=resource.read_text("permission"),
            operations=entry.read_texts("operations"),
            cluster=cluster,
        ).add_to(entry)
        resource.report_unread()
        entry.report_unread()
    if spec is not None:
        spec.report_unread()


def _import_cluster(fields: Fields) -> None:
    name, _, _ = _read_meta(fields)
    spec = fields.read_mapping("spec")
    if spec is None:
        return
    for key in ("zkAddrs", "zkPrefix", "zkLockPath", "versionMajor", "defaultThrottleMB"):
        spec.report_inexpressible(key, OF_THE_TOOL)
    spec.report_inexpressible("defaultRetentionDropStepDuration", OF_THE_TOOL)
    cluster = ImportedCluster(
        name=name,
        place=fields.place,
        bootstrap_servers=spec.read_texts("bootstrapAddrs"),
        cluster_id=spec.read_text("clusterID"),
        security=build_security(spec, _read_tls(spec.read_mapping("tls")), _read_sasl(spec.read_mapping("sasl"))),
    )
    fields.reading.clusters.append(cluster)
    spec.report_unread()


def _read_tls(tls: Fields | None) -> TlsFiles | None:
    if tls is None or not tls.read_flag("enabled"):
        return None
    if tls.read_flag("skipVerify"):
        tls.report_inexpressible(
            "skipVerify", "certificates are always verified", "Give the CA's certificate as security.caFile."
        )
    tls.report_inexpressible("serverName", "the TLS server name is always the host name of the broker")
    settings = TlsFiles(
        ca_file=tls.read_text("caCertPath"), cert_file=tls.read_text("certPath"), key_file=tls.read_text("keyPath")
    )
    tls.report_unread()
    return settings


def _read_sasl(sasl: Fields | None) -> SaslLogin | None:
    if sasl is None or not sasl.read_flag("enabled"):
        return None
    sasl.ignore_keys("password")  # The imported manifest references an environment variable instead of the password.
    sasl.report_inexpressible(
        "secretsManagerArn", "secrets are read from the environment or a file", "Set what security.password names."
    )
    settings = SaslLogin(mechanism=sasl.read_text("mechanism"), username=sasl.read_text("username"))
    sasl.report_unread()
    return settings
