"""Where a Kafka broker's jars are: resolved once by the Ivy inside PySpark, kept in the user's cache folder.

For the stories of the examples that start a broker, and for the tests.

Nothing to install but Java. The first use of a version takes a minute or two; parallel workers wait for one another.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

NEWEST: Final = "4.3.1"
OLDER: Final = "3.9.2"
"""The first minor release with KIP-950, and the last that may have ZooKeeper."""

_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stream-reconciler" / "kafka"
"""Read when this is loaded: tests put another cache folder in place for what they test."""
_RESOLVE_SECONDS: Final = 900
_COMPILER: Final = "3.37.0"
"""Eclipse's compiler for Java; the newest that runs on Java 17."""
_LINES: Final = 5
"""How much of the end of what Ivy says goes into the one line that fails."""

_IVY_XML: Final = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="local" module="kafka-broker"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{version}" conf="default->default"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{version}" conf="default->default"/>
    <dependency org="org.apache.kafka" name="connect-mirror" rev="{version}" conf="default->default"/>
    <dependency org="org.apache.kafka" name="kafka-storage" rev="{version}" conf="default->default">
      <artifact name="kafka-storage" type="jar"/>
      <artifact name="kafka-storage" type="jar" ext="jar" m:classifier="test"/>
    </dependency>
{logging}
  </dependencies>
</ivy-module>
"""
_LOG4J: Final = """\
    <dependency org="org.apache.logging.log4j" name="log4j-core" rev="2.25.3" conf="default->default"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.3" conf="default->default"/>"""


_YARN_XML: Final = """\
<ivy-module version="2.0">
  <info organisation="local" module="yarn"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.hadoop" name="hadoop-client-minicluster" rev="{version}" conf="default->master"/>
    <dependency org="org.junit.jupiter" name="junit-jupiter-api" rev="5.13.4" conf="default->default"/>
    <dependency org="org.bouncycastle" name="bcpkix-jdk18on" rev="1.80" conf="default->default"/>
  </dependencies>
</ivy-module>
"""


class KafkaMissingError(Exception):
    """This machine cannot run a broker; the message says what it lacks."""


def java() -> str:
    """Return the Java to run with: that of JAVA_HOME, else that on the PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        message = f"a Kafka broker needs Java 17 or newer, and there is no `java` {where}: install one"
        raise KafkaMissingError(message)
    return found


def classpath(version: str = NEWEST) -> str:
    """Return the class path of one version of Kafka, resolved if it is not there yet.

    Raises:
        KafkaMissingError: There is no Java, no PySpark, or the artifacts cannot be had.
    """
    ivy = _IVY_XML.format(version=version, logging="" if version.startswith("3.") else _LOG4J)
    return _resolve(version, ivy, "kafka_2.13-*.jar", f"the jars of Kafka {version}")


def yarn_classpath() -> str:
    """Return the class path of a YARN cluster in one JVM, of the same version as the Hadoop client in PySpark.

    Raises:
        KafkaMissingError: There is no Java, no PySpark, or the artifacts cannot be had.
    """
    client = _spark_jar("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    ivy = _YARN_XML.format(version=version)
    libs = _resolve(f"yarn-{version}", ivy, "hadoop-client-minicluster-*.jar", f"the jars of YARN {version}")
    return f"{libs}:{client.parent}/*"


def compiler_jar() -> str:
    """Return the jar of a Java compiler that runs on a Java without one.

    Raises:
        KafkaMissingError: There is no Java, no PySpark, or the artifact cannot be had.
    """
    jar = _CACHE / f"ecj-{_COMPILER}.jar"
    if not jar.is_file():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as folder:
            _retrieve(folder, ("-dependency", "org.eclipse.jdt", "ecj", _COMPILER), jar.name, "a compiler of Java")
            Path(folder, "libs", jar.name).rename(jar)
    return str(jar)


def _retrieve(folder: str, what: Sequence[str], expected: str, name: str) -> None:
    command = [
        *(java(), "-jar", str(_spark_jar("ivy-*.jar")), "-cache", str(_CACHE / "ivy"), *what),
        *("-types", "jar", "bundle", "-confs", "default"),
        *("-retrieve", f"{folder}/libs/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_RESOLVE_SECONDS, check=False)
    if ended.returncode or not any(Path(folder, "libs").glob(expected)):
        said = " | ".join((ended.stdout + ended.stderr).strip().splitlines()[-_LINES:])
        raise KafkaMissingError(f"{name} cannot be had from Maven's central repository: {said}")


def _resolve(name: str, ivy_xml: str, expected: str, what: str) -> str:
    libs = _CACHE / name
    if not libs.is_dir():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with (_CACHE / "lock").open("w") as lock, tempfile.TemporaryDirectory(prefix=f"{name}-", dir=_CACHE) as folder:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not libs.is_dir():
                ivy = Path(folder, "ivy.xml")
                ivy.write_text(ivy_xml)
                _retrieve(folder, ("-ivy", str(ivy)), expected, what)
                Path(folder, "libs").rename(libs)
    return f"{libs}/*"


def _spark_jar(pattern: str) -> Path:
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        message = "a Kafka broker needs PySpark here, which has the Ivy that gets its jars: `make setup`"
        raise KafkaMissingError(message)
    return next(Path(spark.origin).parent.joinpath("jars").glob(pattern))
