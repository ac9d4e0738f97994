"""Resolution of secrets, and access to object stores."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.errors import BrokenInvariantError, UserError
from reconciler.objectstore.open import open_store
from reconciler.objectstore.settings import Account, Credentials, Patience, StoreSettings
from reconciler.objectstore.settings import Secret as StoreSecret
from reconciler.objectstore.wrappers import wrap_read_only
from reconciler.resources.cluster_properties import (
    ACCESS_KEY,
    AZURE_ACCOUNT,
    AZURE_KEY,
    EMBEDDED_PROPERTIES,
    IDLE,
    SECRET_KEY,
    TRUST_FILE,
)
from reconciler.resources.configs import DEFAULT, SECRET_REFERENCE, canonicalize_value
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.providers.protocol import Edge
    from reconciler.resources.cluster import AccountSpec, Cluster, LocationSpec


_MAX_BYTES: Final = 1024 * 1024


class Secret:
    """Text never displayed. Picklable, because executors need it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, only for clients that authenticate with it."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))


def resolve_secret(reference: str, environ: Mapping[str, str]) -> Secret:
    """Resolve `${env:NAME}` or `${file:/path}`. A file's final line end is removed.

    Raises:
        UserError: The secret is missing, unreadable or empty.
    """
    match = SECRET_REFERENCE.fullmatch(reference)
    if match is None:
        raise BrokenInvariantError("a secret is not a reference", hint="Please report how it came to be")
    source, name = match[1], match[2]
    text = _read_environment(name, environ) if source == "env" else _read_file(Path(name))
    if not text:
        raise UserError(f"the secret {reference} is empty", hint="Set it, or correct the reference")
    return Secret(text)


def _read_environment(name: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise UserError(
            f"the environment variable {name} is not set", hint=f"A manifest reads a secret from it: export {name}"
        )
    return environ[name]


def _read_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        text = raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not UTF-8 text"
        hint = "A manifest reads a secret from it: check the path and its permissions"
        raise UserError(f"the secret's file {path} cannot be read: {why}", hint=hint) from error
    if len(raw) > _MAX_BYTES:
        raise UserError(f"the secret's file {path} is longer than a secret can be", hint="Check the path")
    return text.removesuffix("\n").removesuffix("\r")


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Options of a store; `None` means default."""

    patience: Patience | None = None
    credentials: Credentials | None = None
    cloud: tuple[tuple[str, StoreSecret], ...] | None = None
    trust_file: str | None = None


def read_patience(properties: Mapping[str, str]) -> Patience:
    """Return the time limits in a cluster's properties."""

    def read_number(name: str) -> int:
        with suppress(ValueError):
            if name in properties:
                return int(canonicalize_value(name, properties[name], EMBEDDED_PROPERTIES))
        return int(EMBEDDED_PROPERTIES[name].default or 0)

    return Patience(
        read_number("cloud_storage_initial_backoff_ms"),
        read_number("cloud_storage_segment_upload_timeout_ms"),
        read_number("cloud_storage_manifest_upload_timeout_ms"),
        read_number(IDLE),
    )


def resolve_access(properties: Mapping[str, str], patience: Patience, edge: Edge) -> StoreOptions:
    """Return the options of an embedded cluster's object storage, with resolved secrets."""

    def read_secret(name: str) -> StoreSecret | None:
        reference = _find_property(properties, name)
        if reference is None or not SECRET_REFERENCE.fullmatch(reference):
            return None  # Planning rejects a value that is no reference.
        return StoreSecret(resolve_secret(reference, edge.environ).reveal())

    key, secret_key = read_secret(ACCESS_KEY), read_secret(SECRET_KEY)
    account, shared_key = _find_property(properties, AZURE_ACCOUNT), read_secret(AZURE_KEY)
    cloud = None
    if account is not None and shared_key is not None:
        options = {
            "account_name": StoreSecret(account),
            "account_key": shared_key,
            "endpoint": StoreSecret(f"https://{account}.blob.core.windows.net"),
            "credential_type": StoreSecret("access_key"),
        }
        cloud = tuple(options.items())
    return StoreOptions(
        patience,
        None if key is None or secret_key is None else Credentials(key.text, secret_key),
        cloud,
        check_readable(_find_property(properties, TRUST_FILE), edge.folder, what=f"{TRUST_FILE}: the certificates in"),
    )


def _find_property(properties: Mapping[str, str], name: str) -> str | None:
    value = properties.get(name)
    return None if value == DEFAULT else value


def check_readable(name: str | None, folder: Path, *, what: str) -> str | None:
    """Return the path of a readable file; `None` without a name."""
    if name is None:
        return None
    path = folder / name
    try:
        with path.open("rb"):
            return str(path)
    except OSError as error:
        message = f"{what} {path} cannot be read: {error.strerror or error}"
        raise UserError(message, hint="Correct the path, or its permissions.") from error


def build_account(declared: AccountSpec) -> Account:
    """Return the declared account of a login."""
    return Account(**declared.model_dump(by_alias=False))


def open_location(location: LocationSpec, edge: Edge, access: StoreOptions | None = None) -> ObjectStore:
    """Open a store; read-only for a caller without write rights."""
    options = access or StoreOptions()
    settings = StoreSettings(
        location.url,
        location.region,
        location.endpoint,
        location.force_path_style,
        location.kms_key_id,
        credentials=options.credentials if location.url.startswith("s3://") else None,
        patience=options.patience or Patience(),
        cloud=options.cloud if location.url.startswith("az://") else None,
        trust_file=options.trust_file,
        account=build_account(location.account) if location.account else None,
    )
    if settings.account is not None and (settings.credentials is not None or settings.cloud is not None):
        message = f"{location.url}: `account` does not go with keys in `properties`"
        raise UserError(message, hint=f"Keep one of the two: `account`, or the properties {ACCESS_KEY} or {AZURE_KEY}.")
    store = open_store(settings.resolve_path(edge.folder))
    return wrap_read_only(store, edge.now_ms) if edge.is_reader else store


def open_object_storage(declared: Cluster, edge: Edge) -> ObjectStore | None:
    """Open the object storage of an embedded cluster; `None` if undeclared."""
    location, properties = declared.spec.object_storage, declared.spec.properties
    return (
        None
        if location is None
        else open_location(location, edge, resolve_access(properties, read_patience(properties), edge))
    )
