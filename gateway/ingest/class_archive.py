"""The archive of Java classes, which shortens a start of the ingest by a quarter. Java maps the
archive into memory instead of reading thousands of classes out of jars (class data sharing, JEP
350).

In: Delta's jars, and the Java of this machine. Out: the archive's file, and the Java options that
write or use the archive. `onceway ingest prepare` writes the archive.
"""

import hashlib
import os
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from gateway.system.sync import sync

PART = "classes.part"
"""Name of the archive's file while Java writes it."""


def options(jars: Sequence[Path]) -> tuple[str, dict[str, str]]:
    """Return the Java options that use the archive for these jars, and the environment variables
    for Spark. Both are empty if there is no archive.

    Java itself rejects an archive of another Java version, or with a wrong checksum. A truncated
    archive would crash Java, so the file's name contains its size, which is compared first.
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
    """Return the Java options that make Java write the archive `PART` when it ends, and the
    environment variables for Spark.
    """
    return f"'-XX:ArchiveClassesAtExit={jars[0].parent / PART}'", _class_path(jars)


def keep(jars: Sequence[Path]) -> Path:
    """Give the archive that Java has written its final name, and delete older archives. Return its
    path. Raises OSError; FileNotFoundError if Java wrote no archive.
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
    """Return a hash of everything on which an archive depends: the path of Java and its time of
    change, Spark's version, and the paths of the jars. With another hash, the archive cannot be
    used.
    """
    home = os.environ.get("JAVA_HOME")
    java = Path(f"{home}/bin/java" if home else shutil.which("java") or "java").resolve()
    changed = java.stat().st_mtime_ns if java.exists() else 0
    parts = [str(java), str(changed), version("pyspark"), *map(str, jars)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _class_path(jars: Sequence[Path]) -> dict[str, str]:
    """Return the variable with which Spark appends the jars to Java's class path. The jars must be
    on that path, because an archive holds only classes from it.
    """
    others = os.environ.get("SPARK_DIST_CLASSPATH")
    return {
        "SPARK_DIST_CLASSPATH": os.pathsep.join([*([others] if others else []), *map(str, jars)])
    }
