"""Configs of cluster links are those that a MirrorLink declares, and lead back to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from reconciler.errors import UserError
from reconciler.planning.actions import Change
from reconciler.planning.fields import list_fields
from reconciler.providers.brokers.translate import build_naming
from reconciler.providers.confluent.link_options import UNDECLARED, LinkOptions, build_acl_filter, select_set_configs
from reconciler.providers.protocol import Edge
from reconciler.resources.base import KEPT, OnCluster
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirror_link import ALWAYS_SYNCED, AclFilter, MirrorLink, MirrorLinkSpec
from tests.servers.certificates import Authority

SECRETS = {"KEY": "west-key", "SECRET": 'west "secret\\', "PASSWORD": "wonder"}
SCRAM = {
    "protocol": "SASL_PLAINTEXT",
    "mechanism": "SCRAM-SHA-512",
    "username": "reconciler",
    "password": "${env:PASSWORD}",
    "allowPlaintextPasswords": True,
}
CLOUD = {
    "restEndpoint": "https://pkc-1.confluent.cloud:443",
    "apiKey": "${env:KEY}",
    "apiSecret": "${env:SECRET}",
}
CLUSTERS: dict[str, dict[str, Any]] = {
    "east": {"confluent": {**CLOUD, "clusterId": "lkc-east", "bootstrapServers": ["east:9092"]}},
    "west": {"confluent": {**CLOUD, "clusterId": "lkc-west", "bootstrapServers": ["west:9092"]}},
    "plain": {"kafka": {"bootstrapServers": ["plain-1:9092", "plain-2:9092"]}},
    "scram": {"clusterId": "scram-id", "kafka": {"bootstrapServers": ["scram:9092"], "security": SCRAM}},
    "panda": {"redpanda": {"bootstrapServers": ["panda:9092"], "adminUrls": ["http://panda:9644"]}},
    "folder": {"clusterId": "folder-id", "embedded": {"root": "memory://folder"}},
    "oauth": {
        "clusterId": "oauth-id",
        "kafka": {
            "bootstrapServers": ["oauth:9092"],
            "security": {
                "protocol": "SASL_SSL",
                "mechanism": "OAUTHBEARER",
                "clientId": "reconciler",
                "tokenEndpointUrl": "https://login.example.com/token",
            },
        },
    },
}
INCLUDE_ORDERS = {"name": "shop:orders", "patternType": "literal", "filterType": "include"}
AUTO_CREATE = {"enabled": True, "filters": [INCLUDE_ORDERS]}
GROUPS = {"enabled": True, "filters": [{"name": "checkout.", "patternType": "prefixed"}]}
RULE = {
    "resourceType": "topic",
    "resourceName": "shop:orders",
    "patternType": "literal",
    "operation": "describe-configs",
}
ACLS = {"enabled": True, "filters": [RULE, {"principal": "User:checkout", "host": "10.0.0.1", "permission": "deny"}]}
MODES = {"link.mode": "DESTINATION", "connection.mode": "OUTBOUND"}


def declare(name: str, spec: dict[str, Any]) -> Cluster:
    provider = next(name for name in ("kafka", "confluent", "redpanda", "embedded") if name in spec)
    return Cluster.model_validate({"metadata": {"name": name}, "spec": {"provider": provider, **spec}})


def make_options(cluster: str = "east", **clusters: dict[str, Any]) -> LinkOptions:
    declared = {name: declare(name, spec) for name, spec in {**CLUSTERS, **clusters}.items()}
    naming = build_naming(".", ["namespace/east/shop:eu"])
    return LinkOptions(cluster, naming, Edge(Path(), SECRETS, str, int, clusters=declared))


def link(**spec: Any) -> MirrorLinkSpec:
    return MirrorLinkSpec.model_validate({"source": "west", **spec})


def own(name: str) -> dict[str, str]:
    return {"name": name, "patternType": "LITERAL", "filterType": "EXCLUDE"}


def dump(key: str, *rows: Any) -> str:
    return json.dumps({key: rows}, separators=(",", ":"))


SPECS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "defaults are left out": ({}, {}),
    "disabled tasks are left out": (
        {"autoCreate": {"enabled": False}, "consumerOffsetSync": {"enabled": False}, "aclSync": {"enabled": False}},
        {},
    ),
    "plain values": (
        {"prefix": "west.", "paused": True, "startOffset": "latest", "retryTimeout": "10m", "metadataInterval": "1m"},
        {
            "cluster.link.prefix": "west.",
            "cluster.link.paused": "true",
            "mirror.start.offset.spec": "latest",
            "cluster.link.retry.timeout.ms": "600000",
            "metadata.max.age.ms": "60000",
        },
    ),
    "a time to start at": (
        {"startOffset": "2026-01-31T00:00:00Z"},
        {"mirror.start.offset.spec": "2026-01-31T00:00:00Z"},
    ),
    "topics by flat names, and never our own": (
        {
            "autoCreate": {
                "enabled": True,
                "filters": [
                    INCLUDE_ORDERS,
                    {"name": "shop:eu:", "patternType": "prefixed"},
                    {"name": "*"},
                    {"name": "plain", "filterType": "exclude"},
                ],
            }
        },
        {
            "auto.create.mirror.topics.enable": "true",
            "auto.create.mirror.topics.filters": dump(
                "topicFilters",
                {"name": "shop.orders", "patternType": "LITERAL", "filterType": "INCLUDE"},
                {"name": "shop.eu.", "patternType": "PREFIXED", "filterType": "INCLUDE"},
                {"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"},
                own("plain"),
                own("__reconciler"),
                own("__consumer_timestamps"),
            ),
        },
    ),
    "a topic that is excluded by the user and by us": (
        {"autoCreate": {"enabled": True, "filters": [{"name": "*"}, own("__consumer_timestamps")]}},
        {
            "auto.create.mirror.topics.enable": "true",
            "auto.create.mirror.topics.filters": dump(
                "topicFilters",
                {"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"},
                own("__consumer_timestamps"),
                own("__reconciler"),
            ),
        },
    ),
    "groups keep their names": (
        {"prefix": "w-", "consumerOffsetSync": {**GROUPS, "interval": "5s", "prefixGroups": True}},
        {
            "cluster.link.prefix": "w-",
            "consumer.offset.sync.enable": "true",
            "consumer.offset.sync.ms": "5000",
            "consumer.group.prefix.enable": "true",
            "consumer.offset.group.filters": dump(
                "groupFilters", {"name": "checkout.", "patternType": "PREFIXED", "filterType": "INCLUDE"}
            ),
        },
    ),
    "access rules": (
        {"aclSync": {**ACLS, "interval": "10s"}},
        {
            "acl.sync.enable": "true",
            "acl.sync.ms": "10000",
            "acl.filters": dump(
                "aclFilters",
                {
                    "resourceFilter": {"resourceType": "TOPIC", "name": "shop.orders", "patternType": "LITERAL"},
                    "accessFilter": {"operation": "DESCRIBE_CONFIGS", "permissionType": "ANY"},
                },
                {
                    "resourceFilter": {"resourceType": "ANY", "patternType": "ANY"},
                    "accessFilter": {
                        "principal": "User:checkout",
                        "host": "10.0.0.1",
                        "operation": "ANY",
                        "permissionType": "DENY",
                    },
                },
            ),
        },
    ),
    "synced configs, even if the interval is the default": (
        {"topicConfigSync": {"include": [*ALWAYS_SYNCED, "retention.ms"]}},
        {
            "topic.config.sync.ms": "5000",
            "topic.config.sync.include": ",".join(sorted([*ALWAYS_SYNCED, "retention.ms"])),
        },
    ),
    "a bidirectional link": ({"mode": "bidirectional"}, {"link.mode": "BIDIRECTIONAL"}),
    "a link that the source initiates": ({"mode": "source"}, {"connection.mode": "INBOUND"}),
}


@pytest.mark.parametrize(("spec", "configs"), SPECS.values(), ids=SPECS)
def test_configs_are_those_declared_and_lead_back_to_the_declaration(
    spec: dict[str, Any], configs: dict[str, str]
) -> None:
    options, declared = make_options(), link(**spec)
    assert options.build_configs(declared) == {**MODES, **configs}
    read = MirrorLinkSpec.model_validate(options.to_declared({**MODES, **configs}, "lkc-west"), context=KEPT)
    assert list_link_fields(read) == list_link_fields(declared)


def list_link_fields(spec: MirrorLinkSpec) -> dict[str, Any]:
    """Return the fields that a plan compares."""
    return list_fields(MirrorLink(metadata=OnCluster(name="dr", cluster="east"), spec=spec))


BODIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Confluent Cloud, by its API key": (
        {},
        {
            "source_cluster_id": "lkc-west",
            "bootstrap.servers": "west:9092",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
            r'username="west-key" password="west \"secret\\";',
        },
    ),
    "Kafka, by a password": (
        {"source": "scram", "mode": "bidirectional"},
        {
            "remote_cluster_id": "scram-id",
            "bootstrap.servers": "scram:9092",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="reconciler" password="wonder";',
        },
    ),
    "Kafka, without a login": (
        {"source": "plain"},
        {
            "source_cluster_id": "seen-id",
            "bootstrap.servers": "plain-1:9092,plain-2:9092",
            "security.protocol": "PLAINTEXT",
        },
    ),
    "Redpanda": (
        {"source": "panda"},
        {"source_cluster_id": "seen-id", "bootstrap.servers": "panda:9092", "security.protocol": "PLAINTEXT"},
    ),
    "none, because the source initiates the link": ({"mode": "source"}, {"source_cluster_id": "lkc-west"}),
}


@pytest.mark.parametrize(("spec", "expected"), BODIES.values(), ids=BODIES)
def test_a_new_link_has_the_id_and_the_credentials_of_its_source(
    spec: dict[str, Any], expected: dict[str, Any]
) -> None:
    options, declared = make_options(), link(**spec)
    body = options.build(declared, "seen-id")
    client = {row["name"]: row["value"] for row in body.pop("configs")}
    assert {**body, **client} == {**expected, **options.build_configs(declared)}


def test_the_half_of_a_source_is_read_as_a_link_of_the_destination() -> None:
    configs = {"link.mode": "SOURCE", "connection.mode": "OUTBOUND", "bootstrap.servers": "east:9092"}
    read = make_options("scram").to_declared({**configs, "sasl.jaas.config": None}, None, "lkc-east")
    assert MirrorLinkSpec.model_validate(read) == link(source="east", mode="source")


REFUSALS = {
    "a cluster without brokers": ({"source": "folder"}, "cluster folder has no brokers", "platform kafka, redpanda"),
    "a cluster that is not declared": ({"source": "gone"}, "cluster gone has no brokers", "platform kafka, redpanda"),
    "a token": ({"source": "oauth"}, "cannot log in to cluster oauth by OAUTHBEARER", "PLAIN, SCRAM"),
    "an unknown id": ({"source": "plain"}, "the id of cluster plain", "Set spec.clusterId of cluster plain"),
}


@pytest.mark.parametrize(("spec", "message", "hint"), REFUSALS.values(), ids=REFUSALS)
def test_a_source_to_which_no_link_can_connect_is_refused(spec: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        make_options().build(link(**spec))
    assert hint in str(raised.value)


def declare_tls(certificate: Path, key: Path, authority: Path) -> dict[str, Any]:
    files = {"certFile": str(certificate), "keyFile": str(key), "caFile": str(authority)}
    return {
        "clusterId": "tls-id",
        "kafka": {"bootstrapServers": ["tls:9093"], "security": {"protocol": "SSL", **files}},
    }


def test_certificates_are_sent_in_pem(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issued("reconciler")
    options = make_options(tls=declare_tls(certificate, key, authority.ca))
    configs = {row["name"]: row["value"] for row in options.build(link(source="tls"))["configs"]}
    assert {name: value for name, value in configs.items() if name.startswith(("ssl.", "security."))} == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.ca.read_text(),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": certificate.read_text(),
        "ssl.keystore.key": key.read_text(),
    }


def test_a_key_in_a_form_that_no_link_reads_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issued("reconciler")
    forms = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    private_key = serialization.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(private_key.private_bytes(*forms))
    options = make_options(tls=declare_tls(certificate, key, authority.ca))
    with pytest.raises(UserError, match="the key of cluster tls is not in PKCS #8") as raised:
        options.build(link(source="tls"))
    assert "openssl pkcs8" in str(raised.value)
    assert "PRIVATE" not in str(raised.value)


SOURCES = {
    "by its id": ({"bootstrap.servers": "elsewhere:9092"}, "lkc-west", "west"),
    "by its id rather than by an address": ({"bootstrap.servers": "plain-1:9092"}, "scram-id", "scram"),
    "by one of its addresses": ({"bootstrap.servers": "other:1, SASL_SSL://Plain-2:9092"}, "new-id", "plain"),
    "not by an address if the id differs": ({"bootstrap.servers": "scram:9092"}, "other-id", UNDECLARED),
    "by an address if no id is known": ({"bootstrap.servers": "scram:9092"}, None, "scram"),
    "not as the destination": ({"bootstrap.servers": "east:9092"}, "lkc-east", UNDECLARED),
    "not at all": ({}, None, UNDECLARED),
}


@pytest.mark.parametrize(("configs", "cluster_id", "source"), SOURCES.values(), ids=SOURCES)
def test_a_source_is_recognized(configs: dict[str, str], cluster_id: str | None, source: str) -> None:
    assert make_options().to_declared(configs, cluster_id)["source"] == source


@pytest.mark.fact("F-C-208")
def test_secrets_are_never_drift() -> None:
    options, declared = make_options(), link(source="scram", aclSync=ACLS)
    rows = {row["name"]: row["value"] for row in options.build(declared)["configs"]}
    seen = {**rows, "sasl.jaas.config": None, "ssl.keystore.key": None}
    assert "wonder" in str(rows)
    assert options.to_declared(seen, "scram-id") == options.to_declared(rows, "scram-id")
    assert "wonder" not in str(options.to_declared(rows, "scram-id"))
    assert options.change(seen, declared, []) == []


ODD: dict[str, tuple[dict[str, str | None], dict[str, Any]]] = {
    "unknown configs": ({"brand.new": "1", "num.cluster.link.fetchers": "2", "link.prefix": "w-"}, {}),
    "words in any case, and unknown fields": (
        {
            "acl.sync.enable": "TRUE",
            "acl.filters": '{"aclFilters": [{"resourceFilter": {"resourceType": "any", "patternType": "any", "new": 1},'
            ' "accessFilter": {"operation": "any", "permissionType": "any"}}], "version": 2}',
        },
        {"aclSync": {"enabled": True, "filters": [{}]}},
    ),
    "a task without its filters, which reports an error": (
        {"acl.sync.enable": "true"},
        {"aclSync": {"enabled": True, "filters": []}},
    ),
    "tasks without filters, which do nothing": (
        {"auto.create.mirror.topics.enable": "true", "consumer.offset.sync.enable": "true", "acl.filters": ""},
        {},
    ),
    "a task that excludes only our topics": (
        {
            "auto.create.mirror.topics.enable": "true",
            "auto.create.mirror.topics.filters": dump("topicFilters", own("__reconciler")),
        },
        {},
    ),
    "filters of another tool, which excludes a topic as we do": (
        {
            "auto.create.mirror.topics.enable": "true",
            "auto.create.mirror.topics.filters": dump("topicFilters", own("__consumer_timestamps")),
        },
        {"autoCreate": {"enabled": True, "filters": [own("__consumer_timestamps")]}},
    ),
    "an interval without a list of configs": (
        {"topic.config.sync.ms": "6000"},
        {"topicConfigSync": {"interval": 6000}},
    ),
    "the defaults": (
        {
            "topic.config.sync.ms": "5000",
            "acl.sync.ms": "5000",
            "acl.sync.enable": "false",
            "cluster.link.prefix": None,
            "metadata.max.age.ms": "300000",
        },
        {},
    ),
}


@pytest.mark.fact("F-C-209")
@pytest.mark.parametrize(("configs", "spec"), ODD.values(), ids=ODD)
def test_what_another_tool_configured_is_read(configs: dict[str, str | None], spec: dict[str, Any]) -> None:
    read = MirrorLinkSpec.model_validate(make_options().to_declared(configs, "lkc-west"), context=KEPT)
    expected = MirrorLinkSpec.model_validate({"source": "west", **spec}, context=KEPT)
    assert list_link_fields(read) == list_link_fields(expected)


UNKNOWN = {
    "a mode": {"link.mode": "SIDEWAYS"},
    "a filter's type": {"consumer.offset.group.filters": dump("groupFilters", {"name": "a", "patternType": "REGEX"})},
    "a list of filters": {"acl.filters": '["a"]'},
    "a filter": {"acl.filters": '{"aclFilters": ["a"]}'},
    "broken JSON": {"auto.create.mirror.topics.filters": "{"},
    "a number": {"acl.sync.ms": "soon"},
}


@pytest.mark.parametrize("configs", UNKNOWN.values(), ids=UNKNOWN)
def test_a_value_that_no_declaration_can_express_is_an_error(configs: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"unknown|list of filters|Expecting|invalid literal"):
        make_options().to_declared(configs, "lkc-west")


TOPIC_FILTERS, GROUP_FILTERS = "auto.create.mirror.topics.filters", "consumer.offset.group.filters"
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[str, str | None]]]] = {
    "nothing": ({}, {}, []),
    "a link is paused": ({}, {"paused": True}, [("cluster.link.paused", "true")]),
    "a link is resumed": ({"paused": True}, {}, [("cluster.link.paused", "false")]),
    "a default is restored": (
        {"startOffset": "latest", "metadataInterval": "1m"},
        {},
        [("mirror.start.offset.spec", None), ("metadata.max.age.ms", None)],
    ),
    "filters precede the switch that needs them": (
        {},
        {"consumerOffsetSync": GROUPS},
        [
            (
                GROUP_FILTERS,
                dump("groupFilters", {"name": "checkout.", "patternType": "PREFIXED", "filterType": "INCLUDE"}),
            ),
            ("consumer.offset.sync.enable", "true"),
        ],
    ),
    "a task is disabled before its filters are deleted": (
        {"autoCreate": AUTO_CREATE},
        {"autoCreate": {"enabled": False}},
        [("auto.create.mirror.topics.enable", "false"), (TOPIC_FILTERS, None)],
    ),
    "only an interval": (
        {"aclSync": ACLS, "consumerOffsetSync": GROUPS},
        {"aclSync": {**ACLS, "interval": "9s"}, "consumerOffsetSync": GROUPS},
        [("acl.sync.ms", "9000")],
    ),
    "our topics stay excluded": (
        {"autoCreate": AUTO_CREATE},
        {"autoCreate": {"enabled": True, "filters": [{"name": "*"}]}},
        [
            (
                TOPIC_FILTERS,
                dump(
                    "topicFilters",
                    {"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"},
                    own("__reconciler"),
                    own("__consumer_timestamps"),
                ),
            )
        ],
    ),
    "the list of configs is the default again": (
        {"topicConfigSync": {"include": [*ALWAYS_SYNCED]}},
        {},
        [("topic.config.sync.ms", None), ("topic.config.sync.include", None)],
    ),
}


def compare(before: MirrorLinkSpec, after: MirrorLinkSpec) -> list[Change]:
    fields = list_link_fields(before), list_link_fields(after)
    paths = [path for path in sorted({*fields[0], *fields[1]}) if fields[0].get(path) != fields[1].get(path)]
    return [Change(path, fields[0].get(path), fields[1].get(path)) for path in paths]


@pytest.mark.parametrize(("before", "after", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_change_alters_its_own_configs_and_no_others(
    before: dict[str, Any], after: dict[str, Any], expected: list[tuple[str, str | None]]
) -> None:
    options, changes = make_options(), compare(link(**before), link(**after))
    current = {**options.build_configs(link(**before)), "num.cluster.link.fetchers": "2", "sasl.jaas.config": None}
    rows = options.change(current, link(**after), changes)
    assert [(row["name"], row.get("value")) for row in rows] == expected
    assert {row["operation"] for row in rows if "value" not in row} <= {"DELETE"}
    assert {row["operation"] for row in rows if "value" in row} <= {"SET"}
    deleted = {row["name"] for row in rows if "value" not in row}
    kept = {name: value for name, value in current.items() if name not in deleted}
    altered = {**kept, **{row["name"]: row["value"] for row in rows if "value" in row}}
    read = MirrorLinkSpec.model_validate(options.to_declared(altered, "lkc-west"), context=KEPT)
    assert compare(read, link(**after)) == []
    assert options.change(altered, link(**after), changes) == []


@pytest.mark.parametrize("path", ["mode", "prefix", "source", "protect", "keepDiverged"])
def test_a_field_that_no_link_can_change_is_refused(path: str) -> None:
    with pytest.raises(UserError, match=f"{path} of a cluster link cannot change"):
        make_options().change({}, link(), [Change(path, "a", "b")])


def test_new_credentials_replace_the_old_ones_and_leave_everything_else() -> None:
    options, declared = make_options(), link(source="scram")
    current = {
        **options.build_configs(declared),
        "bootstrap.servers": "scram:9092",
        "security.protocol": "SSL",
        "ssl.keystore.key": None,
        "ssl.keystore.type": "PEM",
        "sasl.jaas.config": None,
        "ssl.endpoint.identification.algorithm": "",
    }
    rows = {row["name"]: (row["operation"], row.get("value")) for row in options.rotate(current, declared)}
    operation, secret = rows.pop("sasl.jaas.config")
    assert (operation, "wonder" in str(secret)) == ("SET", True)
    assert rows == {
        "security.protocol": ("SET", "SASL_PLAINTEXT"),
        "sasl.mechanism": ("SET", "SCRAM-SHA-512"),
        "ssl.keystore.key": ("DELETE", None),
        "ssl.keystore.type": ("DELETE", None),
    }


def test_the_half_of_a_destination_has_no_credentials_to_rotate() -> None:
    assert make_options().rotate({"connection.mode": "INBOUND"}, link(mode="source")) == []


def test_only_configs_that_are_set_are_read_in_the_form_of_each_version() -> None:
    rows = [
        {"name": "acl.sync.ms", "value": "5000", "is_default": False},
        {"name": "acl.sync.enable", "value": "false", "is_default": True},
        {"name": "sasl.jaas.config", "value": None, "is_default": False, "is_sensitive": True},
        {"name": "metadata.max.age.ms", "value": "1", "default": False},
        {"name": "retry.backoff.ms", "value": "1", "default": True},
    ]
    assert select_set_configs(rows) == {"acl.sync.ms": "5000", "sasl.jaas.config": None, "metadata.max.age.ms": "1"}


def test_an_asterisk_means_any_in_words_of_an_access_filter() -> None:
    row = AclFilter(resource_type="transactional-id", operation="*").to_json()
    assert build_acl_filter(row, make_options().naming) == {
        "resourceFilter": {"resourceType": "TRANSACTIONAL_ID", "patternType": "ANY"},
        "accessFilter": {"operation": "ANY", "permissionType": "ANY"},
    }
