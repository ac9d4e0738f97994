"""Rounds over linked clusters in memory, each as a process of its own would do them; nobody starts Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.errors import RetryableError
from reconciler.operations.mirrors.mirror_rounds import Rounds, Synced
from reconciler.operations.steps.mirror_copy import Copier
from reconciler.providers.embedded.provider import EmbeddedProvider
from reconciler.providers.protocol import Edge
from reconciler.resources.cluster import Cluster
from tests.engines import here

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.address import Address
    from tests.embedded.links.linked import Linked


def copier(linked: Linked, **options: Any) -> Copier:
    """Return what copies between clusters opened anew."""
    providers = {name: linked.provider(name) for name, store in linked.stores.items() if not isinstance(store, Away)}
    for name in linked.stores.keys() - providers.keys():
        spec = {"embedded": {"root": f"memory://{name}"}}
        declared = Cluster.model_validate({"metadata": {"name": name}, "spec": spec})
        edge = Edge(Path(), {}, linked.new_id, linked.clock)
        providers[name] = EmbeddedProvider(declared, linked.stores[name], edge)
    return Copier(providers, here(**options))


def rounds(linked: Linked, **options: Any) -> Rounds:
    """Return rounds as a new process has them."""
    return Rounds(copier(linked, **options), linked.clock)


def once(
    linked: Linked, *clusters: str, is_wanted: Callable[[Address], bool] = lambda _address: True
) -> dict[str, Synced]:
    """Do one round in a process of its own, and return what came of each mirror."""
    done = rounds(linked).once(clusters or tuple(linked.stores), is_wanted)
    return {one.address: one for one in done.synced}


@dataclass
class Away:
    """A store that does not answer, but to who asks whether there is a cluster."""

    inner: Any

    def __getattr__(self, name: str) -> Any:
        """Refuse what takes the network."""
        if name in {"url", "encrypts"}:
            return getattr(self.inner, name)
        raise RetryableError("the store does not answer", hint="Try again.")


@dataclass
class Counting:
    """A store that counts what is asked of it."""

    inner: Any
    asked: Counter[str] = field(default_factory=Counter)

    def __getattr__(self, name: str) -> Any:
        """Be the same for the rest."""
        found = getattr(self.inner, name)
        if name not in {"get", "get_range", "put", "swap", "copy_in", "delete"}:
            return found

        def counted(*given: Any, **named: Any) -> Any:
            self.asked[name] += 1
            return found(*given, **named)

        return counted

    def list(self, prefix: str) -> Any:
        """Count pages of a thousand."""
        listed = list(self.inner.list(prefix))
        self.asked["list"] += max(1, -(-len(listed) // 1000))
        return iter(listed)


def counting(stores: dict[str, ObjectStore]) -> Mapping[str, Counter[str]]:
    """Let stores count from now on."""
    for name, store in stores.items():
        stores[name] = Counting(store.inner if isinstance(store, Counting) else store)
    return {name: store.asked for name, store in stores.items() if isinstance(store, Counting)}
