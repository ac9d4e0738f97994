"""Writes docs/reference/manifests from the models: a page a kind, one of topic configs, one of properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from reconciler.manifests.json_schema import build_model_definitions
from reconciler.manifests.models import format_example
from reconciler.providers.embedded.provider import CAPABILITIES as EMBEDDED
from reconciler.providers.kafka import KAFKA
from reconciler.resources.base import LONG_MAX, format_duration, format_size
from reconciler.resources.cluster import TIERING_PROPERTIES
from reconciler.resources.configs import EMBEDDED_CONFIGS, POLICY_KEYS
from reconciler.resources.kafka_configs import KAFKA_CONFIGS, ConfigKey
from reconciler.resources.tiering_policy import TieringPolicySpec, find_inexpressible
from tests.docs.programs import table

EXAMPLES: Final[Mapping[str, str]] = {
    "Workspace": """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {name: shop}
spec:
  state: {url: "s3://reconciler-state/shop", region: eu-west-1}
  manifests: [manifests]
  guards:
    maxDeletes: 5
    rules:
      - match: "topic/*"
        require: {labels: [team]}
        message: Every topic names its team
""",
    "Cluster": """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  provider: kafka
  clusterId: tSQCNOjBA_UDaCKdap2g5A
  kafka:
    bootstrapServers: ["broker-1:9093", "broker-2:9093"]
    security:
      protocol: SASL_SSL
      mechanism: SCRAM-SHA-512
      username: reconciler
      password: "${env:RECONCILER_KAFKA_PASSWORD}"
""",
    "Namespace": """\
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: "shop:eu", cluster: west}
spec:
  configs: {retention.ms: 30d}
  acls:
    - {principal: "User:checkout", operations: [read, write], resources: [topics, groups]}
  quotas: {topics: 100, partitions: 2000}
""",
    "Topic": """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: "shop:eu", cluster: west, labels: {team: checkout}}
spec:
  partitions: 12
  replicationFactor: 3
  configs: {cleanup.policy: delete, retention.ms: 7d}
""",
    "TieringPolicy": """\
apiVersion: reconciler/v1
kind: TieringPolicy
metadata: {name: archive}
spec:
  remoteWrite: true
  remoteRead: true
  retention: {time: 365d}
  localRetention: {time: 6h}
""",
    "Mounting": """\
apiVersion: reconciler/v1
kind: Mounting
metadata: {name: clicks, namespace: web, cluster: west}
spec:
  state: unmounted
""",
    "MirrorLink": """\
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: from-west, cluster: east}
spec:
  source: west
  consumerOffsetSync: {enabled: true, filters: [{name: "*"}]}
  mirrorTopics:
    - source: shop:eu:orders
    - {source: shop:eu:payments, state: paused}
""",
}

ON_KAFKA: Final[Mapping[str, tuple[bool, str]]] = {
    "Topic.spec.recoverFrom": (KAFKA.recovery, "Refused: a Kafka topic comes back by a Mounting."),
    "Topic.spec.readReplicaOf": (KAFKA.read_replicas, "Refused: brokers serve only what they stored themselves."),
    "Namespace.spec.encryption": (KAFKA.encryption, "Refused."),
    "Namespace.spec.quotas": (KAFKA.keeps_quotas, "Checked by each plan; the brokers do not know them."),
    "Namespace.spec.configs": (KAFKA.inherits_configs, "Written to each topic below."),
    "Cluster.spec.tiering": (False, "Refused: brokers have no such properties."),
    "MirrorLink.spec.mirrorTopics[].state": (
        "reversed" in KAFKA.mirrors.roles,
        f"{', '.join(sorted(KAFKA.mirrors.roles))} only.",
    ),
    "MirrorLink.spec.mode": (
        "source-mode" in KAFKA.mirrors.features,
        "No `source`; `destination` may become `bidirectional`.",
    ),
}
"""Field → whether Kafka does the same as an embedded cluster, by its capabilities, and what it does where not."""

_KINDS: Final = ("Workspace", "Cluster", "Namespace", "Topic", "TieringPolicy", "Mounting", "MirrorLink")


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page below docs/reference/manifests."""
    definitions = build_model_definitions()
    for kind in _KINDS:
        yield f"{kind.lower()}.md", _page(kind, definitions)
    yield "topic-configs.md", _configs()
    yield "cluster-properties.md", _properties()


def _page(kind: str, definitions: Mapping[str, Any]) -> str:
    about = definitions[kind]["description"]
    rows = list(_rows(kind, definitions, ""))
    fields = table(("field", "type", "default", "what it says"), rows)
    more = f"\n{_policy_words()}" if kind == "TieringPolicy" else f"\n{_tiering_words()}" if kind == "Cluster" else ""
    note = _notes(kind)
    return f"# {kind}\n\n{about}\n\n```yaml\n{EXAMPLES[kind]}```\n\n{fields}{note}{more}"


def _rows(model: str, definitions: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, ...]]:
    definition = definitions[model]
    required = {*definition.get("required", ()), *(("apiVersion", "kind") if not prefix else ())}
    for name, field in definition["properties"].items():
        path = f"{prefix}{name}"
        inner, is_list = _inner(field, definitions)
        about = field.get("description") or (definitions[inner]["description"] if inner else "")
        example = "" if inner or not field.get("examples") else f" Example: `{_flow(field['examples'][0])}`."
        yield (
            f"`{path}`",
            _type(field, definitions),
            "**required**" if name in required else _default(field),
            f"{about}{example}",
        )
        if inner and inner != model:
            yield from _rows(inner, definitions, f"{path}[]." if is_list else f"{path}.")


def _inner(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> tuple[str | None, bool]:
    """Return the model that a field holds, and whether it holds a list of them."""
    for choice in (field, *field.get("anyOf", ())):
        for part, is_list in ((choice, False), (choice.get("items", {}), True)):
            name = str(part.get("$ref", "")).removeprefix("#/$defs/")
            if name in definitions and "properties" in definitions[name]:
                return name, is_list
    return None, False


def _type(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return the type of a field in the words of people who write YAML."""
    if "$ref" in field:
        name = field["$ref"].removeprefix("#/$defs/")
        return "mapping" if "properties" in definitions[name] else _type(definitions[name], definitions)
    if "anyOf" in field:
        patterns = " ".join(choice.get("pattern", "") for choice in field["anyOf"])
        if "infinite" in patterns:
            return "size" if "[kKmMgGtTpP]" in patterns else "duration"
        return " or ".join(dict.fromkeys(_type(choice, definitions) for choice in field["anyOf"]))
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    match field.get("type"):
        case "integer":
            return f"whole number{_range(field)}"
        case "boolean":
            return "`true`, `false`"
        case "array":
            inner = _type(field["items"], definitions)
            return "list of mappings" if inner == "mapping" else f"list of {inner}"
        case "object":
            return "mapping of names to values"
        case _ if field.get("secret"):
            return "reference to a secret"
        case _ if field.get("format") == "date":
            return "date"
        case _:
            return "text"


def _range(field: Mapping[str, Any]) -> str:
    least, most = field.get("minimum"), field.get("maximum")
    if least is not None and most is not None:
        return f", {least} to {most}"
    return f", at least {least}" if least is not None else ""


def _default(field: Mapping[str, Any]) -> str:
    default = field.get("default")
    if default is None or default == []:
        return "none"
    kind = _type(field, {}) if "$ref" not in field else ""
    if kind == "duration":
        return f"`{format_duration(default)}`"
    if kind == "size":
        return f"`{format_size(default)}`"
    return f"`{_flow(default)}`" if default != "" else "empty"


def _flow(value: Any) -> str:
    return format_example(value).replace("|", "\\|")


def _notes(kind: str) -> str:
    """Return where the platforms differ, for the fields of a kind."""
    said = [
        (path.partition(".")[2], text)
        for path, (same, text) in ON_KAFKA.items()
        if not same and path.startswith(f"{kind}.")
    ]
    if kind == "TieringPolicy":
        said += [(f"spec.{'.'.join(path)}", f"Refused: `{what}`. {_capital(why)}.") for path, what, why in _unsayable()]
    if not said:
        return "\nEvery field holds on embedded clusters and on Apache Kafka.\n" if kind != "Workspace" else ""
    rows = [(f"`{path}`", text) for path, text in said]
    where = "Other platforms" if kind == "Cluster" else "On Apache Kafka"
    return f"\n## {where}\n\nWhat is not named here holds as on embedded clusters.\n\n{table(('field', 'there'), rows)}"


def _unsayable() -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Return what Kafka cannot say of a policy: each reason is what the planner itself answers."""
    cases: list[dict[str, Any]] = [
        {"remoteWrite": True, "remoteRead": False},
        {"remoteRead": True},
        {"remoteDelete": False},
        {"initialLocalRetention": {"time": "1h"}},
        {"localRetention": {"strict": False}},
    ]
    for case in cases:
        ((path, said),) = find_inexpressible(TieringPolicySpec.model_validate(case))
        yield path, format_example(case)[1:-1], said.rpartition(": ")[2]


def _capital(text: str) -> str:
    """Begin a sentence; the name of a field keeps its case."""
    word = text.partition(" ")[0]
    return text if word != word.lower() else text[0].upper() + text[1:]


def _policy_words() -> str:
    rows = [
        (f"`{'.'.join(_camel(part) for part in field.split('.'))}`", f"`{words[0]}`", _on_kafka(words))
        for field, words in POLICY_KEYS.items()
    ]
    return f"## The configs that a field stands for\n\n{table(('field of spec', 'embedded', 'Kafka'), rows)}"


def _on_kafka(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words if word in KAFKA_CONFIGS) or "none"


def _tiering_words() -> str:
    rows = [(f"`{field}`", f"`{name}`") for field, name in TIERING_PROPERTIES.items()]
    return f"## The properties that `spec.tiering` stands for\n\n{table(('field of spec.tiering', 'property'), rows)}"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def _configs() -> str:
    rows = [
        (
            f"`{key.name}`",
            _kind_of(key),
            _stored(key),
            "both" if key.name in KAFKA_CONFIGS else "embedded",
            key.description,
        )
        for key in EMBEDDED_CONFIGS.values()
    ]
    head = (
        "What `spec.configs` of a Topic, a Namespace or a mirror may hold. Quantities are written `7d` or `10GiB`, or "
        "as the plain number of milliseconds or bytes. The value `default` resets a config to what it inherits.\n\n"
        "The defaults are those of Apache Kafka 4; a broker's own settings go before them."
    )
    return f"# Topic configs\n\n{head}\n\n" + table(("config", "type", "default", "platforms", "what it says"), rows)


def _properties() -> str:
    rows = [(f"`{key.name}`", _kind_of(key), _stored(key), key.description) for key in EMBEDDED.properties.values()]
    head = (
        "What `spec.properties` of an embedded Cluster may hold. On Kafka the names are those of the brokers' dynamic "
        "configs, and the brokers say which they know."
    )
    return f"# Cluster properties\n\n{head}\n\n" + table(("property", "type", "default", "what it says"), rows)


def _kind_of(key: ConfigKey) -> str:
    if key.values:
        words = ", ".join(f"`{value}`" for value in key.values)
        return f"list of {words}" if key.type == "list" else words
    match key.type:
        case "boolean":
            return "`true`, `false`"
        case "integer" | "double":
            least = "" if key.minimum is None else f", at least {key.minimum:g}"
            return ("whole number" if key.type == "integer" else "number") + least
        case "string":
            return "text"
        case _:
            return key.type


def _stored(key: ConfigKey) -> str:
    if key.default in {None, ""}:
        return "none"
    if str(key.default).startswith("-"):
        return f"`{key.default}`"
    if key.default == str(LONG_MAX):
        return "unlimited"
    if key.type == "duration":
        return f"`{format_duration(int(str(key.default)))}`"
    if key.type == "size":
        return f"`{format_size(int(str(key.default)))}`"
    return f"`{key.default}`"
