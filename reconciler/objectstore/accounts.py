"""Cloud accounts of logins: AWS profiles and roles, Google service accounts, Azure identities."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from reconciler.errors import NotAuthorizedError, RetryableError, UserError, find_root_cause
from reconciler.objectstore.settings import Account
from reconciler.runtime.text import to_one_line

# ruff: noqa: PLC0415 - only a login to a cloud imports its library


_SESSION_NAME: Final = "reconciler"
_STS_REGIONS: Final = {"aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}


def load_aws_credentials(account: Account | None, region: str | None = None) -> Any:
    """Return botocore's credentials of an account, `None` if there are none; a role's renew themselves.

    Each process requests credentials of a profile or role once.
    """
    credentials = _load_credentials(os.getpid(), account or Account(), region)
    if credentials is None:
        _load_credentials.cache_clear()  # They may be there at the next login.
    return credentials


@lru_cache(maxsize=256)
def _load_credentials(process: int, account: Account, region: str | None) -> Any:  # noqa: ARG001 - a fork must not share its locks
    import botocore.session
    from botocore.credentials import DeferredRefreshableCredentials

    session = botocore.session.Session(profile=account.profile)
    source = session.get_credentials()
    if account.role_arn is None or source is None:
        return source
    region = region or session.get_config_variable("region")
    return DeferredRefreshableCredentials(_RoleSession(session, source, account, region).assume, "assume-role")


class _RoleSession:
    """Requests temporary keys of a role."""

    def __init__(self, session: Any, source: Any, account: Account, region: str | None) -> None:
        from botocore.credentials import AssumeRoleCredentialFetcher

        self._role = account.role_arn or ""
        partition = self._role.split(":")[1]
        sts_region = region or _STS_REGIONS.get(partition, "us-east-1")
        arguments = {"RoleSessionName": account.session_name or _SESSION_NAME, "ExternalId": account.external_id}

        def open_client(service: str, **options: Any) -> Any:
            return session.create_client(service, region_name=sts_region, **options)

        present = {name: value for name, value in arguments.items() if value is not None}
        self._fetcher = AssumeRoleCredentialFetcher(open_client, source, self._role, extra_args=present)

    def assume(self) -> Any:
        """Return temporary keys with their expiry. An STS refusal becomes an error that names the role."""
        from botocore.exceptions import ClientError, CredentialRetrievalError

        try:
            return self._fetcher.fetch_credentials()
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            details = error.response.get("Error", {})
            reason = to_one_line(f"{details.get('Message', '')} ({details.get('Code', status)})")
            raise CredentialRetrievalError(provider=f"the role {self._role}", error_msg=reason) from error


class CloudToken(NamedTuple):
    """A token of Google or Azure, and the account that it belongs to (`None`: unknown)."""

    text: str
    expires_at: float
    """Seconds since 1970."""
    subject: str | None = None


_GOOGLE_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_MESSAGE_CHARS: Final = 300


class GoogleTokens:
    """Source of Google access tokens, of a service account if one is named. Thread-safe."""

    def __init__(self, account: Account | None) -> None:
        self._account = account or Account()
        self._lock = threading.Lock()
        self._credentials: Any = None

    def get_token(self, *, refused: str = "", for_s: float = 0) -> CloudToken:
        """Return a token that is valid for `for_s` seconds, if Google's tokens are; not the one a server refused."""
        with self._lock, _translate_google_errors(self._account):
            from google.auth.transport.requests import Request

            if self._credentials is None:
                self._credentials = self._open_credentials()
            credentials = self._credentials
            earliest = time.time() + for_s  # noqa: TID251 - compared with the expiry, as Google's library does
            is_short = credentials.valid and _read_expiry(credentials) < earliest
            if not credentials.valid or is_short or credentials.token == refused:
                credentials.refresh(Request())
            subject = self._account.service_account or getattr(credentials, "service_account_email", None)
            return CloudToken(credentials.token, _read_expiry(credentials), subject)

    def _open_credentials(self) -> Any:
        import google.auth
        from google.auth.impersonated_credentials import Credentials

        logging.getLogger("google.auth").addHandler(logging.NullHandler())  # It warns about missing projects.
        source, _ = google.auth.default(scopes=[_GOOGLE_SCOPE])
        name = self._account.service_account
        if name is None:
            return source
        return Credentials(source, name, [_GOOGLE_SCOPE])  # type: ignore[no-untyped-call]


def _read_expiry(credentials: Any) -> float:
    return float(credentials.expiry.replace(tzinfo=UTC).timestamp())


class AzureTokens:
    """Source of Azure access tokens for one scope, of a managed identity if one is named. Thread-safe."""

    def __init__(self, account: Account | None, scope: str) -> None:
        self._account, self._scope = account or Account(), scope
        self._lock = threading.Lock()
        self._credential: Any = None

    def get_token(self, *, refused: str = "") -> CloudToken:
        """Return a valid token, not the one that a server refused. The library caches tokens and renews them."""
        with self._lock, _translate_azure_errors(self._account):
            from azure.identity import DefaultAzureCredential, ManagedIdentityCredential

            for _ in range(2):
                if self._credential is None:
                    name = self._account.client_id
                    self._credential = (
                        DefaultAzureCredential() if name is None else ManagedIdentityCredential(client_id=name)
                    )
                token = self._credential.get_token(self._scope)
                if token.token != refused:
                    break
                self._credential = None  # A new one has an empty cache.
            return CloudToken(token.token, token.expires_on)


@contextmanager
def _translate_google_errors(account: Account) -> Iterator[None]:
    try:
        from google.auth.exceptions import GoogleAuthError, TransportError
    except ImportError as error:
        raise _build_missing_error("google-auth", "gcs") from error
    who = "Google" if account.service_account is None else f"the service account {account.service_account}"
    try:
        yield
    except TransportError as error:
        raise _build_silence_error(who, error) from error
    except GoogleAuthError as error:
        hint = (
            "Check the name, that the machine's account has roles/iam.serviceAccountTokenCreator on it, and "
            "GOOGLE_APPLICATION_CREDENTIALS; or log in: gcloud auth application-default login."
        )
        raise NotAuthorizedError(f"{who} gives no token: {_shorten(error)}", hint=hint) from None


@contextmanager
def _translate_azure_errors(account: Account) -> Iterator[None]:
    try:
        from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError
    except ImportError as error:
        raise _build_missing_error("azure-identity", "azure") from error
    who = "Azure" if account.client_id is None else f"the managed identity {account.client_id}"
    try:
        yield
    except ServiceRequestError as error:
        raise _build_silence_error(who, error) from error
    except (ClientAuthenticationError, HttpResponseError, ValueError) as error:
        hint = "Check clientId, that the identity is assigned to this machine, and `scope`; or log in: az login."
        raise NotAuthorizedError(f"{who} gives no token: {_shorten(error)}", hint=hint) from None


def _build_missing_error(package: str, extra: str) -> UserError:
    hint = f"Install it: pip install 'stream-reconciler[{extra}]'."
    return UserError(f"tokens of this account need {package}, which is not installed", hint=hint)


def _build_silence_error(who: str, error: Exception) -> RetryableError:
    hint = "Check the network, then run the same command again."
    return RetryableError(f"{who}: the token server does not answer: {find_root_cause(error)}", hint=hint)


def _shorten(error: Exception) -> str:
    return to_one_line(str(error).partition("\n")[0])[:_MESSAGE_CHARS].rstrip(". ")
