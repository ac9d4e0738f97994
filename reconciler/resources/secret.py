"""References to secrets: `${env:NAME}` and `${file:/path}`, resolved only at the edge and never stored resolved."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from reconciler.resources.base import Complaint, refusal

SECRET_REFERENCE: Final = re.compile(r"\$\{(env|file):([^}]+)\}")


def check_reference(value: str) -> str:
    """Return `value` if it is a reference. Raises ValueError: a secret written out would enter git."""
    if not SECRET_REFERENCE.fullmatch(value):
        raise refusal(
            Complaint(
                "a secret must be a reference, never the secret itself",
                hint="Write ${env:NAME} or ${file:/path}",
            )
        )
    return value


SecretReference = Annotated[
    str,
    AfterValidator(check_reference),
    Field(
        examples=["${env:KAFKA_PASSWORD}"],
        json_schema_extra={"secret": True, "pattern": r"^\$\{(env|file):[^}]+\}$"},
    ),
]
