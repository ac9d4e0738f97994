"""Where the cache lies: a folder of its own within the one that is given, or a private one among temporary files.

Everything in it may be deleted by whoever trims, so nothing else ever lies there.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError
from reconciler.resources.clusterproperties import property_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_OURS: Final = "remote-chunks"
DIRECTORY: Final = "cloud_storage_cache_directory"


def usable_folder(properties: Mapping[str, str], default: str | None) -> Path | None:
    """Return the folder of the cache on this machine, made where it is missing; `None`: there is no place for one.

    It is within the declared directory, else within `default`, else among temporary files. What another user owns is
    not used: they could put there what we would read.

    Raises:
        UserError: The declared directory is not a full path.
    """
    declared = property_of(properties, DIRECTORY)
    if declared is not None:
        check_directory(declared)
        return _made(Path(declared) / _OURS)
    places = [Path(default) / _OURS] if default is not None and Path(default).is_absolute() else []
    places.append(Path(tempfile.gettempdir()) / f"reconciler-{_OURS}-{os.getuid()}")
    return next((made for place in places if (made := _made(place)) is not None), None)


def check_directory(declared: str) -> None:
    """Refuse a directory that means another place in every process (F-R-053).

    Raises:
        UserError: It is no full path.
    """
    if not Path(declared).is_absolute():
        message = f"{DIRECTORY} is {declared!r}, which is no full path"
        raise UserError(message, hint="Write it from the root: /var/cache/reconciler.")


def _made(folder: Path) -> Path | None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return folder if is_ours else None
