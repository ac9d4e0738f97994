"""Check where secrets may be sent before a cluster is opened.

A manifest names secret and receiver, so its author could send any secret anywhere. Therefore the workspace must allow
the reference, the address must be known or allowed, and the connection encrypted unless the Cluster waives it. For a
pull request, only its base decides.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from reconciler.errors import BlockedError, UserError
from reconciler.manifests.files import is_outside
from reconciler.manifests.load import LoadedWorkspace, load_manifests, load_workspace
from reconciler.planning.allowances import CONNECT
from reconciler.planning.checks.cluster_checks import HINT, find_plaintext_fields
from reconciler.planning.plan import PlanFinding
from reconciler.resources.address import matches_pattern
from reconciler.resources.cluster import Cluster, LocationSpec
from reconciler.resources.cluster_properties import ACCESS_KEY, AZURE_KEY, SECRET_KEY, TRUST_FILE
from reconciler.resources.configs import SECRET_REFERENCE
from reconciler.runtime.dataclass import dataclass, replace

if TYPE_CHECKING:
    from reconciler.manifests.overlays import Variables
    from reconciler.operations.steps.invocation import Invocation, PullRequestBase, Select
    from reconciler.resources.workspace import Guards


class SentSecret(NamedTuple):
    """A secret and the addresses that receive it. For a locally signed token, `reference` is the mechanism."""

    field: str
    reference: str
    to: frozenset[str]


@dataclass(frozen=True)
class _TrustedFacts:
    allow: tuple[str, ...]
    clusters: Mapping[str, Cluster]
    endpoints: frozenset[str] = frozenset()
    places: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Trust:
    """Checks secrets and locations of clusters before these are opened."""

    invocation: Invocation
    select: Select
    variables: Variables
    loaded: LoadedWorkspace
    recorded: Callable[[], Mapping[str, Cluster]]

    def check_cluster(self, cluster: Cluster) -> None:
        """Reject a cluster that may not receive its secrets. Contacts nothing.

        Raises:
            BlockedError: A secret would be sent to a new address. `--allow connect:ADDR` allows it.
        """
        where = self.loaded.desired[cluster.address].source if cluster.address in self.loaded.desired else ""
        about = f"{where}: {cluster.address}" if where else str(cluster.address)
        reject_plaintext(cluster, about)
        if refused := self._find_disallowed_secrets(cluster):
            message, hint = self._explain_refusal(refused[0])
            raise UserError(f"{about}: {message}", hint=f"Nothing was read. {hint}.")
        for sent in list_secrets(cluster):
            self._check_addresses_known(about, cluster, sent)
        for location in _list_locations(cluster):
            self._check_location(about, str(cluster.address), location)
        self._check_files(about, cluster)

    def check_state(self) -> None:
        """Raise `BlockedError` if a pull request moves the state to a location that its base lacks."""
        self._check_location("reconciler.yaml: spec.state", "state", self.loaded.workspace.spec.state)

    @cached_property
    def _base(self) -> PullRequestBase | None:
        return self.invocation.base_files(self.loaded.folder)

    @property
    def _is_pull_request(self) -> bool:
        return self._base is not None

    @cached_property
    def base_guards(self) -> Guards | None:
        """Guards of the pull request's base; `None` without one, or for a new workspace."""
        if self._base is None:
            return None
        folder = self._base.map_path(self.loaded.folder)
        if not (folder / "reconciler.yaml").is_file():
            return None
        variables = self._base_variables()
        base = load_workspace(folder, environment=self.select.environment, variables=variables, within=self._base.files)
        return base.spec.guards

    def _base_variables(self) -> Variables:
        return replace(self.variables, files=tuple(map(self._find_file_in_base, self.variables.files)))

    @cached_property
    def _trusted_facts(self) -> _TrustedFacts:
        if self._base is None:
            return _TrustedFacts(self.loaded.workspace.spec.references.allow, self.recorded())
        folder = self._base.map_path(self.loaded.folder)
        if not (folder / "reconciler.yaml").is_file():
            return _TrustedFacts((), {})
        try:
            variables = self._base_variables()
            base = load_manifests(
                folder, environment=self.select.environment, variables=variables, within=self._base.files
            )
        except UserError as error:
            message = f"the base of this pull request cannot be read: {error.message}"
            raise UserError(
                message, hint="Its manifests decide where secrets may be sent. Correct it there."
            ) from error
        clusters = [declared.resource for declared in base.desired.values() if isinstance(declared.resource, Cluster)]
        locations = [base.workspace.spec.state, *(place for cluster in clusters for place in _list_locations(cluster))]
        return _TrustedFacts(
            base.workspace.spec.references.allow,
            {cluster.metadata.name: cluster for cluster in clusters},
            frozenset(location.endpoint for location in locations if location.endpoint is not None),
            frozenset(location.url for location in locations),
        )

    def _find_file_in_base(self, file: Path) -> Path:
        """A file outside the repository is the same in both."""
        if self._base is None:
            return file
        for path in (Path(os.path.abspath(file)), Path(os.path.realpath(file))):  # noqa: PTH100 - links stay
            if path.is_relative_to(self._base.root):
                return self._base.map_path(path)
        return file

    def find_refused_references(self) -> Iterator[PlanFinding]:
        """Yield a finding for each secret that prevents opening its cluster. Contacts nothing."""
        for address, declared in self.loaded.desired.items():
            if isinstance(declared.resource, Cluster):
                for sent in self._find_disallowed_secrets(declared.resource):
                    message, hint = self._explain_refusal(sent)
                    mark = address, ("spec", *sent.field.split("."))
                    yield PlanFinding(address, declared.source, message, hint, marks=(mark,))

    def _find_disallowed_secrets(self, cluster: Cluster) -> list[SentSecret]:
        return [
            sent
            for sent in list_secrets(cluster)
            if _is_reference(sent)
            and not self._was_sent(cluster, sent)
            and not any(_matches_reference(pattern, sent.reference) for pattern in self._trusted_facts.allow)
        ]

    def _was_sent(self, cluster: Cluster, sent: SentSecret) -> bool:
        before = self._trusted_facts.clusters.get(cluster.metadata.name)
        earlier = () if before is None else list_secrets(before)
        return any(other.reference == sent.reference and sent.to <= other.to for other in earlier)

    def _check_addresses_known(self, about: str, cluster: Cluster, sent: SentSecret) -> None:
        if self._was_sent(cluster, sent):
            return
        before = self._trusted_facts.clusters.get(cluster.metadata.name)
        addresses = frozenset[str]() if before is None else list_receiving_addresses(before)
        if before is None and not self._is_pull_request:
            return
        fresh = sorted(sent.to - addresses)
        if fresh and not self._is_allowed(cluster.address):
            was = "which the base of this pull request" if self._is_pull_request else "which the state"
            what = "secret" if _is_reference(sent) else "token"
            message = f"{about}: the {what} of {sent.field} would go to {fresh[0]}, {was} does not know"
            hint = f"Nothing was sent. If that is its address now: --allow connect:{cluster.address}"
            raise BlockedError(message, hint=hint)

    def _explain_refusal(self, sent: SentSecret) -> tuple[str, str]:
        whose = "the base of this pull request" if self._is_pull_request else "reconciler.yaml"
        clusters = (item.resource for item in self.loaded.desired.values() if isinstance(item.resource, Cluster))
        missing = {other.reference for cluster in clusters for other in self._find_disallowed_secrets(cluster)} | {
            sent.reference
        }
        names = [*self._trusted_facts.allow, *(reference[2:-1] for reference in sorted(missing))]
        line = f"references: {{allow: {json.dumps(names)}}}"
        hint = f"To allow it, set in spec of reconciler.yaml: {line}"
        if self._is_pull_request:
            hint += ". Merge that into the base branch first: what a pull request allows itself does not count"
        return f"{sent.field}: {whose} does not allow the reference {sent.reference}", hint

    def _check_files(self, about: str, cluster: Cluster) -> None:
        named = tuple(_list_files(cluster))
        if not named or not self._is_pull_request:
            return
        before = self._trusted_facts.clusters.get(cluster.metadata.name)
        known = set() if before is None else {path for _, path in _list_files(before)}
        for field, name in named:
            path = (self.loaded.folder / name).resolve()
            if name not in known and not path.is_relative_to(self.loaded.folder.resolve()):
                message = f"{about}: {field}: {name} is outside the workspace, and the base branch does not name it"
                raise UserError(message, hint="Nothing was read. A pull request may only name files of the workspace.")

    def _check_location(self, about: str, address: str, location: LocationSpec) -> None:
        if self._base is None:
            return
        scheme, _, name = location.url.partition("://")
        if scheme == "file":
            self._check_folder(self._base.root, f"{about}: {location.url}", name, location.url)
        endpoint = location.endpoint
        if endpoint is not None and endpoint not in self._trusted_facts.endpoints and not self._is_allowed(address):
            message = f"{about}: {location.url} at {endpoint}, which the base of this pull request does not know"
            hint = f"Nothing was sent. If that is its address now: --allow connect:{address}"
            raise BlockedError(message, hint=hint)

    def _check_folder(self, root: Path, about: str, name: str, url: str) -> None:
        place = self.loaded.folder.resolve() / name
        if not Path(os.path.normpath(place)).is_relative_to(root):
            if url in self._trusted_facts.places:
                return
            message = f"{about} is outside the repository, and the base branch does not name it"
            raise UserError(message, hint="Nothing was read. A pull request may only name places of the repository.")
        if is_outside(place, root):
            message = f"{about} leads out of the repository by a link"
            raise UserError(message, hint="Nothing was read. A pull request may only name places of the repository.")
        if (link := _find_symlink(place.resolve())) is not None:
            message = f"{about}: {link} is a symbolic link"
            hint = "Nothing was read. In a pull request the folder of a state or cluster holds no links. Remove it."
            raise UserError(message, hint=hint)

    def _is_allowed(self, address: str) -> bool:
        allowed = (text.partition(":") for text in self.select.allow)
        return any(verb == CONNECT and matches_pattern(pattern, address) for verb, _, pattern in allowed)


def reject_plaintext(cluster: Cluster, about: str) -> None:
    """Reject sending a password or token in clear text."""
    for field, message in find_plaintext_fields(cluster):
        raise UserError(f"{about}: {field} {message}", hint=HINT)


def list_secrets(cluster: Cluster) -> Iterator[SentSecret]:
    """Yield a cluster's secrets with their addresses."""
    spec = cluster.spec
    for field, reference, to in spec.connection.list_secrets():
        yield SentSecret(f"{spec.provider}.{field}", reference, to)
    for name in (ACCESS_KEY, SECRET_KEY, AZURE_KEY) if spec.root is not None else ():
        if SECRET_REFERENCE.fullmatch(spec.properties.get(name, "")):
            yield SentSecret(f"properties.{name}", spec.properties[name], _list_storage_addresses(cluster))


def _list_storage_addresses(cluster: Cluster) -> frozenset[str]:
    storage = cluster.spec.object_storage if cluster.spec.root is not None else None
    return frozenset() if storage is None else frozenset({storage.endpoint or storage.url})


def list_receiving_addresses(cluster: Cluster) -> frozenset[str]:
    """Return addresses that may receive a cluster's secrets."""
    sent = frozenset(address for sent in list_secrets(cluster) for address in sent.to)
    return sent | cluster.spec.connection.list_secret_targets() | _list_storage_addresses(cluster)


def _list_locations(cluster: Cluster) -> Iterator[LocationSpec]:
    locations = cluster.spec.root, cluster.spec.object_storage
    yield from (location for location in locations if location is not None)


def _list_files(cluster: Cluster) -> Iterator[tuple[str, str]]:
    spec = cluster.spec
    yield from ((f"{spec.provider}.{field}", path) for field, path in spec.connection.list_files())
    if spec.root is not None and TRUST_FILE in spec.properties:
        yield f"properties.{TRUST_FILE}", spec.properties[TRUST_FILE]


def _find_symlink(folder: Path) -> Path | None:
    for inside, folders, files in os.walk(folder):
        link = next((name for name in (*folders, *files) if (Path(inside) / name).is_symlink()), None)
        if link is not None:
            return Path(inside, link)
    return None


def _is_reference(sent: SentSecret) -> bool:
    return SECRET_REFERENCE.fullmatch(sent.reference) is not None


def _matches_reference(pattern: str, reference: str) -> bool:
    kind, _, wanted = pattern.partition(":")
    source, _, name = reference[2:-1].partition(":")
    if kind != source:
        return False
    if kind == "env":
        return name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted
    path, place = os.path.realpath(name), os.path.realpath(wanted)
    return path == place or (wanted.endswith("/") and path.startswith(posixpath.join(place, "")))
