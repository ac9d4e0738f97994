"""Reads a resource of any kind from its dictionary."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import ConfigDict, Field, TypeAdapter

from reconciler.resources.inventory import Resource

RESOURCE: Final[TypeAdapter[Resource]] = TypeAdapter(
    Annotated[Resource, Field(discriminator="kind")], config=ConfigDict(defer_build=True)
)
