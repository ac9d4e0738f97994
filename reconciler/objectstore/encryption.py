"""Stores without keys of their own refuse to be asked for one: nothing is left unencrypted in silence."""

from __future__ import annotations

from reconciler.errors import UserError


def refuse_key(url: str, kms_key_id: str | None) -> None:
    """Return where no key is named.

    Raises:
        UserError: One is.
    """
    if kms_key_id is not None:
        message = f"{url} cannot encrypt objects under key {kms_key_id}"
        raise UserError(message, hint="Keep the cluster on s3://, or take `encryption` out of the namespace.")
