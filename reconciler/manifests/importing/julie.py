"""JulieOps: topologies; a topic's name is made of context, project and topic, and roles stand for access rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from reconciler.manifests.importing.fields import Fields
from reconciler.manifests.importing.found import FoundTopic
from reconciler.manifests.importing.julieroles import Role, take_roles, take_users
from reconciler.manifests.importing.wording import NO_TEXT, NOT_KAFKA

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.manifests.importing.found import Reading, Said
    from reconciler.manifests.importing.julienames import Names
    from reconciler.manifests.importing.sources import Document

_NOT_IN_NAMES: Final = frozenset({"context", "projects", "platform", "special_topics"})
_PARTITIONS: Final = "num.partitions"
_REPLICATION: Final = "replication.factor"
_PLANS: Final = "plans"


def claims(content: Any) -> bool:
    """Tell whether a document is a topology, or the plans that topologies name."""
    return isinstance(content, dict) and (
        ("context" in content and isinstance(content.get("projects"), list))
        or (content.keys() == {_PLANS} and isinstance(content[_PLANS], dict))
    )


def read(documents: tuple[Document, ...], reading: Reading, names: Names) -> None:
    """Take what the documents say into a reading; `names` says how the names of topics are made."""
    whole = [Fields(document.content, reading, document.locate) for document in documents]
    plans = {name: plan.said("config") for each in whole for name, plan in _plans(each)}
    for topology in whole:
        if "projects" in topology.content:
            _take_topology(topology, names, plans)


def _plans(document: Fields) -> Iterable[tuple[str, Fields]]:
    return document.named(_PLANS) if _PLANS in document.content else ()


def _take_topology(topology: Fields, names: Names, plans: Mapping[str, Mapping[str, Said]]) -> None:
    context = {"context": topology.text("context") or ""}
    for key in topology.content:
        if key not in _NOT_IN_NAMES:
            context[key] = topology.text(key) or ""
    for project in topology.each("projects"):
        name = project.text("name") or ""
        project.subject = f"project {name}"
        _take_project(project, {**context, "project": name}, names, plans)
    for topic in topology.each("special_topics"):
        full_name = topic.text("name") or ""
        topic.subject = f"topic {full_name}"
        _take_topic(topic, full_name, plans, ())
    topology.unsaid("platform", f"rules for platform components: {NOT_KAFKA}")
    topology.rest()


def _take_project(
    project: Fields, context: Mapping[str, str], names: Names, plans: Mapping[str, Mapping[str, Said]]
) -> None:
    roles = take_users(project)
    for topic in project.each("topics"):
        said = {"topic": topic.text("name") or "", "dataType": topic.text("dataType") or ""}
        full_name = names.topic({**context, **said})
        topic.subject = f"topic {full_name}"
        _take_topic(topic, full_name, plans, roles)
    take_roles(project, names.project(context))
    for key in ("schemas", "rbac", "ksql"):
        project.unsaid(key, NOT_KAFKA)
    project.rest()


def _take_topic(topic: Fields, name: str, plans: Mapping[str, Mapping[str, Said]], roles: Iterable[Role]) -> None:
    configs = topic.said("config")
    plan = topic.text("plan")
    if plan is not None and plan not in plans:
        topic.lost("plan", f"no plan {plan} is in these files", "Import the folder that holds the file of plans, too.")
    configs |= plans.get(plan or "", {})  # a plan wins over the topic
    counts = Fields({key: said.value for key, said in configs.items()}, topic.reading, lambda _: topic.of("config"))
    counts.subject = topic.subject
    found = FoundTopic(
        name=name,
        place=topic.place,
        partitions=counts.number(_PARTITIONS),
        replication_factor=counts.number(_REPLICATION),
        configs={key: said for key, said in configs.items() if key not in {_PARTITIONS, _REPLICATION}},
    )
    topic.reading.topics.append(found)
    for role in (*roles, *take_users(topic)):
        role.add_to(topic, name)
    topic.unsaid("metadata", NO_TEXT)
    for key in ("schemas", "subject.name.strategy"):
        topic.unsaid(key, NOT_KAFKA)
    topic.rest()
