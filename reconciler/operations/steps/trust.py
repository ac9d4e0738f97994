"""Which secrets may go where.

A manifest names a secret and the address it is sent to; whoever writes manifests could send any secret of the machine
anywhere. So three things are asked before a cluster is opened. The workspace allows the reference. The address is one
that the cluster had before, or a person allows it. And it is encrypted, unless the Cluster says that it need not be.

In a pull request nothing of the pull request itself is believed: what is allowed and known is what its base says.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from reconciler.errors import BlockedError, UserError
from reconciler.manifests.files import is_outside
from reconciler.manifests.load import Loaded, load, load_workspace
from reconciler.planning.allowances import CONNECT
from reconciler.planning.checks.cluster_checks import HINT, plaintext_of
from reconciler.resources.address import matches
from reconciler.resources.cluster import Cluster, LocationSpec
from reconciler.resources.cluster_properties import ACCESS_KEY, AZURE_KEY, SECRET_KEY, TRUST_FILE
from reconciler.resources.configs import SECRET_REFERENCE

if TYPE_CHECKING:
    from reconciler.manifests.overlays import Variables
    from reconciler.operations.steps.invocation import Base, Invocation, Select
    from reconciler.resources.workspace import Guards


class SentSecret(NamedTuple):
    """A secret, and where it is sent."""

    field: str
    reference: str
    to: frozenset[str]


@dataclass(frozen=True)
class _Known:
    """What may be believed: what is allowed, and the clusters as they were."""

    allow: tuple[str, ...]
    clusters: Mapping[str, Cluster]
    endpoints: frozenset[str] = frozenset()
    """Of all that lies in object storage."""
    places: frozenset[str] = frozenset()
    """Where that and the state lie, as it is written."""


@dataclass(frozen=True)
class Trust:
    """What is asked of a workspace's clusters before one of them is opened."""

    invocation: Invocation
    select: Select
    variables: Variables
    loaded: Loaded
    recorded: Callable[[], Mapping[str, Cluster]]
    """The clusters as they were last applied, by name; empty where nobody can tell."""

    def check(self, cluster: Cluster) -> None:
        """Refuse to open a cluster to which a secret would go that should not. Nothing was asked of anybody yet.

        Raises:
            UserError: A reference is not allowed, or a password would go in clear.
            BlockedError: A secret would go to an address that is new; `--allow connect:ADDR` lifts that.
        """
        where = self.loaded.desired[cluster.address].source if cluster.address in self.loaded.desired else ""
        about = f"{where}: {cluster.address}" if where else str(cluster.address)
        refuse_plaintext(cluster, about)
        for sent in sent_by(cluster):
            self._check_sent(about, cluster, sent)
        for location in _locations(cluster):
            self._check_location(about, str(cluster.address), location)
        self._check_files(about, cluster)

    def check_state(self) -> None:
        """Refuse a pull request that moves the state to a place its base does not know.

        Raises:
            BlockedError: It does.
        """
        self._check_location("reconciler.yaml: spec.state", "state", self.loaded.workspace.spec.state)

    @cached_property
    def _base(self) -> Base | None:
        """What the base has, where this is a pull request."""
        return self.invocation.base_files(self.loaded.folder)

    @property
    def _is_foreign(self) -> bool:
        return self._base is not None

    @cached_property
    def base_guards(self) -> Guards | None:
        """The guards of the base; `None`: this is no pull request, or it makes the workspace.

        Raises:
            UserError: The base cannot be read.
        """
        if self._base is None:
            return None
        folder = self._base.of(self.loaded.folder)
        if not (folder / "reconciler.yaml").is_file():
            return None
        variables = self._variables_of_base()
        base = load_workspace(folder, environment=self.select.environment, variables=variables, within=self._base.files)
        return base.spec.guards

    def _variables_of_base(self) -> Variables:
        return replace(self.variables, files=tuple(map(self._of_base, self.variables.files)))

    @cached_property
    def _known(self) -> _Known:
        if self._base is None:
            return _Known(self.loaded.workspace.spec.references.allow, self.recorded())
        folder = self._base.of(self.loaded.folder)
        if not (folder / "reconciler.yaml").is_file():
            return _Known((), {})
        try:
            variables = self._variables_of_base()
            base = load(folder, environment=self.select.environment, variables=variables, within=self._base.files)
        except UserError as error:
            message = f"the base of this pull request cannot be read: {error.message}"
            raise UserError(message, hint="Its manifests say which secrets may go where. Correct it there.") from error
        clusters = [each.resource for each in base.desired.values() if isinstance(each.resource, Cluster)]
        locations = [base.workspace.spec.state, *(place for each in clusters for place in _locations(each))]
        return _Known(
            base.workspace.spec.references.allow,
            {each.metadata.name: each for each in clusters},
            frozenset(each.endpoint for each in locations if each.endpoint is not None),
            frozenset(each.url for each in locations),
        )

    def _of_base(self, file: Path) -> Path:
        """Return what the base has of a file of variables; what was typed as lying outside is nobody's to change."""
        if self._base is None:
            return file
        for path in (Path(os.path.abspath(file)), Path(os.path.realpath(file))):  # noqa: PTH100 - links stay
            if path.is_relative_to(self._base.root):
                return self._base.of(path)
        return file

    def _check_sent(self, about: str, cluster: Cluster, sent: SentSecret) -> None:
        before = self._known.clusters.get(cluster.metadata.name)
        was_sent = () if before is None else tuple(sent_by(before))
        if any(each.reference == sent.reference and sent.to <= each.to for each in was_sent):
            return
        if not any(_allows(pattern, sent.reference) for pattern in self._known.allow):
            raise self._not_allowed(about, sent)
        addresses = frozenset[str]() if before is None else addresses_of(before)
        if before is None and not self._is_foreign:
            return  # A new cluster in files that are ours.
        fresh = sorted(sent.to - addresses)
        if fresh and not self._is_let(cluster.address):
            was = "which the base of this pull request" if self._is_foreign else "which the state"
            message = f"{about}: the secret of {sent.field} would go to {fresh[0]}, {was} does not know"
            hint = f"Nothing was sent. If that is its address now: --allow connect:{cluster.address}"
            raise BlockedError(message, hint=hint)

    def _not_allowed(self, about: str, sent: SentSecret) -> UserError:
        source, name = sent.reference[2:-1].split(":", 1)
        whose = "the base of this pull request" if self._is_foreign else "reconciler.yaml"
        message = f"{about}: {sent.field}: {whose} does not allow the reference {sent.reference}"
        hint = f"Nothing was read. To allow it, add `{source}:{name}` to spec.references.allow of reconciler.yaml"
        return UserError(message, hint=f"{hint}, on the base branch." if self._is_foreign else f"{hint}.")

    def _check_files(self, about: str, cluster: Cluster) -> None:
        """Refuse files elsewhere that a pull request alone names."""
        named = tuple(_files(cluster))
        if not named or not self._is_foreign:
            return
        before = self._known.clusters.get(cluster.metadata.name)
        known = set() if before is None else {path for _, path in _files(before)}
        for field, name in named:
            path = (self.loaded.folder / name).resolve()
            if name not in known and not path.is_relative_to(self.loaded.folder.resolve()):
                message = f"{about}: {field}: {name} lies outside of the workspace, and the base does not name it"
                raise UserError(message, hint="Nothing was read. A pull request may only name files of the workspace.")

    def _check_location(self, about: str, address: str, location: LocationSpec) -> None:
        """Refuse an endpoint of object storage, and a folder elsewhere, that a pull request alone names."""
        if self._base is None:
            return
        scheme, _, name = location.url.partition("://")
        if scheme == "file":
            self._check_place(self._base.root, f"{about}: {location.url}", name, location.url)
        endpoint = location.endpoint
        if endpoint is not None and endpoint not in self._known.endpoints and not self._is_let(address):
            message = f"{about}: {location.url} at {endpoint}, which the base of this pull request does not know"
            hint = f"Nothing was sent. If that is its address now: --allow connect:{address}"
            raise BlockedError(message, hint=hint)

    def _check_place(self, root: Path, about: str, name: str, url: str) -> None:
        """Refuse a folder elsewhere that the base does not name, and one of the repository that leads elsewhere."""
        place = self.loaded.folder.resolve() / name
        if not Path(os.path.normpath(place)).is_relative_to(root):
            if url in self._known.places:
                return
            message = f"{about} lies outside of the repository, and the base does not name it"
            raise UserError(message, hint="Nothing was read. A pull request may only name places of the repository.")
        if is_outside(place, root):
            message = f"{about} leads out of the repository by a link"
            raise UserError(message, hint="Nothing was read. A pull request may only name places of the repository.")
        if (link := _link_in(place.resolve())) is not None:
            message = f"{about}: {link} is a symbolic link"
            hint = "Nothing was read. In a pull request the folder of a state or cluster holds no links. Remove it."
            raise UserError(message, hint=hint)

    def _is_let(self, address: str) -> bool:
        allowed = (text.partition(":") for text in self.select.allow)
        return any(verb == CONNECT and matches(pattern, address) for verb, _, pattern in allowed)


def refuse_plaintext(cluster: Cluster, about: str) -> None:
    """Refuse a cluster to which a password or token would go in clear.

    Raises:
        UserError: One would.
    """
    for field, message in plaintext_of(cluster):
        raise UserError(f"{about}: {field} {message}", hint=HINT)


def sent_by(cluster: Cluster) -> Iterator[SentSecret]:
    """Yield the secrets of a cluster, and where each is sent."""
    spec = cluster.spec
    for field, reference, to in spec.connection.secrets():
        yield SentSecret(f"{spec.provider}.{field}", reference, to)
    for name in (ACCESS_KEY, SECRET_KEY, AZURE_KEY) if spec.root is not None else ():
        if SECRET_REFERENCE.fullmatch(spec.properties.get(name, "")):
            yield SentSecret(f"properties.{name}", spec.properties[name], _storage_of(cluster))


def _storage_of(cluster: Cluster) -> frozenset[str]:
    """Return where the keys of a cluster's object storage go: of an embedded cluster only."""
    storage = cluster.spec.object_storage if cluster.spec.root is not None else None
    return frozenset() if storage is None else frozenset({storage.endpoint or storage.url})


def addresses_of(cluster: Cluster) -> frozenset[str]:
    """Return every address that a cluster sends secrets to, or would."""
    sent = frozenset(address for sent in sent_by(cluster) for address in sent.to)
    return sent | cluster.spec.connection.targets() | _storage_of(cluster)


def _locations(cluster: Cluster) -> Iterator[LocationSpec]:
    locations = cluster.spec.root, cluster.spec.object_storage
    yield from (location for location in locations if location is not None)


def _files(cluster: Cluster) -> Iterator[tuple[str, str]]:
    spec, security = cluster.spec, cluster.spec.connection.login()
    if security is not None:
        named = {"caFile": security.ca_file, "certFile": security.cert_file, "keyFile": security.key_file}
        yield from ((f"{spec.provider}.security.{field}", path) for field, path in named.items() if path is not None)
    if spec.root is not None and TRUST_FILE in spec.properties:
        yield f"properties.{TRUST_FILE}", spec.properties[TRUST_FILE]


def _link_in(folder: Path) -> Path | None:
    """Return a link below a folder, however deep: what is read through it may lie anywhere."""
    for inside, folders, files in os.walk(folder):
        found = next((name for name in (*folders, *files) if (Path(inside) / name).is_symlink()), None)
        if found is not None:
            return Path(inside, found)
    return None


def _allows(pattern: str, reference: str) -> bool:
    """Tell whether an entry of `spec.references.allow` is about a reference; links and `..` are followed first."""
    kind, _, wanted = pattern.partition(":")
    source, _, name = reference[2:-1].partition(":")
    if kind != source:
        return False
    if kind == "env":
        return name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted
    path, place = os.path.realpath(name), os.path.realpath(wanted)
    return path == place or (wanted.endswith("/") and path.startswith(posixpath.join(place, "")))
