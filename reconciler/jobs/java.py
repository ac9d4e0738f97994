"""Is there a Java that can run Spark? Asked before Spark is started, because Spark's own answer is a page long."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

OLDEST: Final = 17
_PATIENCE_S: Final = 60
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_INSTALLERS: Final = (
    ("apt-get", f"sudo apt-get install openjdk-{OLDEST}-jre-headless"),
    ("dnf", f"sudo dnf install java-{OLDEST}-openjdk-headless"),
    ("apk", f"sudo apk add openjdk{OLDEST}-jre-headless"),
    ("brew", f"brew install openjdk@{OLDEST}"),
)


def check_java(environ: Mapping[str, str]) -> None:
    """Return if Spark would find a Java it can run on, as `JAVA_HOME` or on the `PATH`.

    Raises:
        UserError: There is none, or it is too old; the hint names the command that installs one.
    """
    path = environ.get("PATH", "")
    home = environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=path)
    if java is None or shutil.which(java) is None:
        where = f"JAVA_HOME is {home}, and there is no bin/java in it" if home else "there is no java on the PATH"
        raise UserError(f"Data jobs run on Spark, which needs Java {OLDEST} or newer: {where}", hint=_advice(path))
    version = _version(java, environ)
    if version is None:
        raise UserError(f"{java} does not run: it does not say its version", hint=_advice(path))
    if version < OLDEST:
        message = f"Data jobs run on Spark, which needs Java {OLDEST} or newer: {java} is Java {version}"
        raise UserError(message, hint=_advice(path))


def _version(java: str, environ: Mapping[str, str]) -> int | None:
    try:
        said = subprocess.run(  # noqa: S603 - the program Spark itself would start
            [java, "-version"], env=dict(environ), capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(said.stderr + said.stdout)
    return int(found[1]) if found else None


def _advice(path: str) -> str:
    for program, command in _INSTALLERS:
        if shutil.which(program, path=path):
            return f"Install it: {command}; or set JAVA_HOME to one."
    place = "winget install EclipseAdoptium.Temurin.17.JRE" if sys.platform == "win32" else "https://adoptium.net"
    return f"Install it: {place}; or set JAVA_HOME to one."
