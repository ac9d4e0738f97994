"""What the caller of `drift --known FILE` has seen before: a local file of fingerprints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from reconciler.workflow.drift import Found

FORMAT: Final = "reconciler.known-drift/1"


def forget_known(path: Path, findings: Sequence[Found]) -> tuple[Found, ...]:
    """Return `findings` without those the file knows, and rewrite the file to all that is there now."""
    known = _read(path)
    now = sorted({found.fingerprint for found in findings if found.fingerprint})
    try:
        path.write_bytes(orjson.dumps({"format": FORMAT, "fingerprints": now}, option=orjson.OPT_INDENT_2) + b"\n")
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}", hint="Name a file that can be written."
        ) from error
    return tuple(found for found in findings if found.fingerprint not in known)


def _read(path: Path) -> frozenset[str]:
    try:
        held = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}", hint="Name a readable file.") from error
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON: {error}", hint="Delete it; it is written anew.") from error
    if not isinstance(held, dict) or held.get("format") != FORMAT or not isinstance(held.get("fingerprints"), list):
        raise UserError(f"{path} is not a file of {FORMAT}", hint="Delete it; it is written anew.")
    return frozenset(str(item) for item in held["fingerprints"])
