"""Tiered topics described in object storage: `topic.json` follows the catalog, also where no segment was uploaded yet.

What was written is remembered by its digest, so a pass in which no topic changed asks for none of them. What became of
it since is looked at by the scrub.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import orjson

from reconciler.embedded.catalog.holding import is_served
from reconciler.embedded.catalog.tiering import tiering_of
from reconciler.embedded.keys import location_prefix
from reconciler.embedded.remote.manifests.topicmanifest import TopicManifest, write_topic_manifest
from reconciler.errors import ReconcilerError
from reconciler.lifecycles.tiering import TieringState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.remote.tier import RemoteTier

_DIGEST: Final = 16


def changed_topics(
    remote: RemoteTier, catalog: Catalog, is_wanted: Callable[[str], bool], known: dict[str, Any]
) -> Iterator[tuple[TopicManifest, bool]]:
    """Yield the topics whose description may have changed, and whether one is to be made where there is none.

    One is made of topics that upload; of those that did it is kept up to date. `known` is what `described` returned
    of each when it was written last, by topic id.
    """
    for full_name, topic in catalog.topics.items():
        tiering = tiering_of(catalog, full_name, remote.cluster_id)
        if tiering is None or not is_served(topic) or not is_wanted(full_name):
            continue
        manifest = TopicManifest.of(catalog, full_name, remote.cluster_id)
        if known.get(topic.id) != described(manifest, creates=tiering.uploads):
            yield manifest, tiering.uploads


def described(manifest: TopicManifest, *, creates: bool) -> str:
    """Return what tells whether a topic was described as it is."""
    kept = orjson.dumps([{**manifest.to_json(), "serial": 0}, creates], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(kept).hexdigest()[:_DIGEST]


def describe(
    remote: RemoteTier, catalog: Catalog, is_wanted: Callable[[str], bool], known: dict[str, Any]
) -> Iterator[tuple[str, ReconcilerError]]:
    """Describe topics as the catalog has them, and yield those that could not be, with the reason.

    `known` is what was described last, by topic id: it is brought up to date.
    """
    names = {entry.id: name for name, entry in catalog.topics.items()}
    for gone in [topic_id for topic_id in known if topic_id not in names]:
        del known[gone]
    for manifest, creates in changed_topics(remote, catalog, is_wanted, known):
        topic_id = catalog.topics[manifest.name].id
        try:
            write_topic_manifest(remote.storage, manifest, creates=creates)
        except ReconcilerError as error:
            known.pop(topic_id, None)
            yield manifest.name, error
        else:
            known[topic_id] = described(manifest, creates=creates)


def describe_anew(remote: RemoteTier, catalog: Catalog, full_name: str) -> bool:
    """Look at the description of one topic, and write it where it is missing, damaged or out of date.

    It is also made of a topic that uploads nothing any more, where something of it is to stay. Say whether it was
    written.

    Raises:
        UserError: It belongs to another cluster now, or a newer version wrote it.
    """
    tiering = tiering_of(catalog, full_name, remote.cluster_id)
    if tiering is None or not is_served(catalog.topics[full_name]):
        return False
    location = tiering.location
    is_kept = tiering.state is TieringState.ENABLED or tiering.policy == "retain"
    prefix = location_prefix(location.cluster_id, location.revision)
    creates = tiering.uploads or (is_kept and next(iter(remote.storage.list(prefix)), None) is not None)
    return write_topic_manifest(
        remote.storage, TopicManifest.of(catalog, full_name, remote.cluster_id), creates=creates
    )
