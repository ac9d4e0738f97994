"""References to secrets: `${env:NAME}` and `${file:/path}`, resolved only at the edge and never stored resolved."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

SECRET_REFERENCE: Final = re.compile(r"\$\{(env|file):([^}]+)\}")


def check_reference(value: str) -> str:
    """Return `value` if it is a reference. Raises ValueError: a secret written out would enter git."""
    if not SECRET_REFERENCE.fullmatch(value):
        message = "a secret must be a reference: ${env:NAME} or ${file:/path}"
        raise ValueError(message)
    return value


SecretReference = Annotated[
    str, AfterValidator(check_reference), Field(examples=["${env:KAFKA_PASSWORD}"], json_schema_extra={"secret": True})
]
