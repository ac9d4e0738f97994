"""Cloud accounts of logins: sessions of AWS profiles and assumed roles."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, Final

from reconciler.objectstore.settings import Account
from reconciler.runtime.text import to_one_line

# ruff: noqa: PLC0415 - only a login to a cloud imports its library


_SESSION_NAME: Final = "reconciler"
_STS_REGIONS: Final = {"aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}
_BUSY_STATUS: Final = 429
_SERVER_ERROR: Final = 500


def load_aws_credentials(account: Account | None, region: str | None = None) -> Any:
    """Return botocore's credentials of an account, `None` if there are none; a role's renew themselves.

    Each process requests credentials of a profile or role once.
    """
    return _load_credentials(os.getpid(), account or Account(), region)


def forget_aws_credentials() -> None:
    """Make the next login read profiles and assume roles again."""
    _load_credentials.cache_clear()


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
            if status == _BUSY_STATUS or status >= _SERVER_ERROR:
                raise
            details = error.response.get("Error", {})
            reason = to_one_line(f"{details.get('Message', '')} ({details.get('Code', status)})")
            raise CredentialRetrievalError(provider=f"the role {self._role}", error_msg=reason) from error
