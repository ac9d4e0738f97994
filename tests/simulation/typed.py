"""A visit as it is typed: `b,after=a,resumes,crash@37,freeze@60+27`. What is as it always is, is left out."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from typing import Any, Final, cast

from tests.simulation.machine import Fault, Harm
from tests.simulation.world import Visit

_FAULT: Final = re.compile(r"([a-z]+)@(\d+)(?:\+([\d.]+)s?)?")


def typed(visit: Visit) -> str:
    said = [visit.machine]
    for part in fields(Visit):
        value = getattr(visit, part.name)
        if part.name in {"machine", "faults"} or (part.default is not MISSING and value == part.default):
            continue
        said.append(part.name if value is True else f"{part.name}={value}")
    return ",".join([*said, *map(str, visit.faults)])


def read(word: str) -> Visit:
    machine, *parts = word.split(",")
    given: dict[str, Any] = {}
    faults = []
    kinds: dict[str, Any] = {part.name: type(part.default) for part in fields(Visit)}
    for part in parts:
        fault = _FAULT.fullmatch(part)
        if fault:
            faults.append(Fault(int(fault[2]), cast("Harm", fault[1]), float(fault[3] or 0)))
        elif "=" in part:
            name, _, value = part.partition("=")
            given[name] = value if name == "after" else kinds[name](value)
        else:
            given[part] = True
    return Visit(machine, tuple(faults), **given)
