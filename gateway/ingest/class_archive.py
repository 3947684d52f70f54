"""The archive of Java's classes, with which a start of the ingest takes a quarter less time: Java
maps it instead of reading thousands of classes out of jars (class data sharing, JEP 350).

In: Delta's jars, and the Java of this machine. Out: the archive's file, and the options with which
Java writes or uses it. `onceway ingest prepare` writes it.
"""

import hashlib
import os
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from gateway.system.sync import sync

PART = "classes.part"
"""Name of an archive that Java is writing."""


def options(jars: Sequence[Path]) -> tuple[str, dict[str, str]]:
    """Return the options with which Java uses the archive for these jars, and the variables that
    Spark needs; neither if there is no archive.

    Java ignores an archive of another version, and verifies its sums. A shorter file would crash
    it, so the name gives the size.
    """
    for archive in jars[0].parent.glob(f"classes-{_key(jars)}-*.jsa"):
        if archive.stem.rpartition("-")[2] == str(archive.stat().st_size):
            use = f"'-XX:SharedArchiveFile={archive}' -Xshare:auto -XX:+VerifySharedSpaces"
            return f"{use} -Xlog:cds*=off", _class_path(jars)
    return "", {}


def is_stale(jars: Sequence[Path]) -> bool:
    """Whether there are archives, but none for this Java, this Spark and these jars."""
    return any(jars[0].parent.glob("classes-*.jsa")) and not options(jars)[0]


def options_to_write(jars: Sequence[Path]) -> tuple[str, dict[str, str]]:
    """Return the options and variables for a Java that writes PART when it ends."""
    return f"'-XX:ArchiveClassesAtExit={jars[0].parent / PART}'", _class_path(jars)


def keep(jars: Sequence[Path]) -> Path:
    """Give a written archive its name, and delete older ones. Raises OSError; FileNotFoundError if
    Java wrote none.
    """
    part = jars[0].parent / PART
    size = part.stat().st_size
    sync(part)
    older = [one for one in part.parent.glob("classes-*.jsa") if one.is_file()]
    archive = part.rename(part.with_name(f"classes-{_key(jars)}-{size}.jsa"))
    sync(archive.parent)
    for one in older:
        if one != archive:
            one.unlink(missing_ok=True)
    return archive


def _key(jars: Sequence[Path]) -> str:
    """Return a name for what an archive depends on: Java, Spark, and the jars."""
    home = os.environ.get("JAVA_HOME")
    java = Path(f"{home}/bin/java" if home else shutil.which("java") or "java").resolve()
    changed = java.stat().st_mtime_ns if java.exists() else 0
    parts = [str(java), str(changed), version("pyspark"), *map(str, jars)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _class_path(jars: Sequence[Path]) -> dict[str, str]:
    """Return the variable with which Spark appends the jars to Java's class path. An archive holds
    only classes from that path.
    """
    others = os.environ.get("SPARK_DIST_CLASSPATH")
    return {
        "SPARK_DIST_CLASSPATH": os.pathsep.join([*([others] if others else []), *map(str, jars)])
    }
