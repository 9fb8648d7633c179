"""The Java classes of the pipeline, compiled inside Spark's own JVM.

Spark has Janino for its code generation, so no compiler, jar or build is needed here. Compiled classes go to
the executors as a jar, like any user's.

Why Java: no function of Spark finds the JSON types of every path exactly and in one pass. `read.json` merges
true + 1 to text, `schema_of_variant_agg` leaves conflicts open, and neither knows timestamps. Measured on
300,000 events of 1 KB, warm, CPU seconds per million: this scan 5-7 (of which reading lines about 4),
`read.json` inference 10-15 plus a second pass for the ambiguous fields, `schema_of_variant_agg` about 45.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from headwater.pipeline.lineage_hints import job_description
from headwater.pipeline.spark.java_runtime import SparkUnavailable
from headwater.pipeline.steps.field_tree import MAX_DEPTH, MAX_FIELDS
from headwater.system.installation import install_command

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

SOURCES = ("EventCheck", "Values", "Scan", "ParseEvents")
PACKAGE = "headwater.pipeline"
FUNCTION = "headwater_event_check"
CHECKED = "headwater.checksums"

_loaders: WeakKeyDictionary[SparkContext, Any] = WeakKeyDictionary()


def with_checksums(lines: DataFrame, line: str) -> DataFrame:
    """The same lines, each of which has a checksum behind the event; Scan and EventCheck compare them.

    This is noted in the column's metadata.
    """
    return lines.withMetadata(line, {CHECKED: True})


def have_checksums(lines: DataFrame, line: str) -> bool:
    """Whether the lines were read `with_checksums`."""
    return bool(lines.schema[line].metadata.get(CHECKED))


def scan(lines: DataFrame, *columns: str, browser_keys: str = "", max_lines: int = 0) -> list[str]:
    """The answers of Scan.java over a column of text, one JSON text per partition, in order.

    With `max_lines` those of the first lines of each partition alone. With three more columns, the table of a
    line, the reason why it has none, and the number of its file: one answer per partition, file and table.
    """
    spark = lines.sparkSession
    constructor = _load(spark, "Scan").getConstructors()[0]
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    arguments = gateway.new_array(gateway.jvm.java.lang.Object, 6)
    is_checked = have_checksums(lines, columns[0])
    values = (MAX_DEPTH, MAX_FIELDS, browser_keys, len(columns) > 1, is_checked, max_lines)
    for place, argument in enumerate(values):
        arguments[place] = argument
    function = constructor.newInstance(arguments)
    rows = lines.select(*columns)._jdf.queryExecution().toRdd().toJavaRDD()
    with job_description(lines.sparkSession, "scan events"):
        return [str(answer) for answer in rows.mapPartitions(function).collect()]


def prepare(spark: SparkSession) -> None:
    """Compiles the classes now instead of with the first batch, and makes them known to this session."""
    _register(spark, _load(spark, "EventCheck"))


def event_check(lines: DataFrame, line: str) -> Column:
    """The reason why a line is not an event (EventCheck.java): NULL if it is one, empty if it is blank."""
    from pyspark.sql import functions

    _load(lines.sparkSession, "EventCheck")
    is_checked = functions.lit(have_checksums(lines, line))
    return functions.call_udf(FUNCTION, lines[line].cast("binary"), is_checked)


def field_set(spark: SparkSession) -> Any:
    """An accumulator of the fields that `parse_events` finds: the answers of its tasks."""
    jvm: Any = spark._jvm
    # a class of Spark: the driver reads the results of tasks without our classes
    made = jvm.org.apache.spark.util.CollectionAccumulator()
    context: Any = spark.sparkContext
    context._jsc.sc().register(made)
    return made


def parse_events(lines: DataFrame, line: str, plan: bytes, fields: StructType, found: Any = None) -> Column:
    """The events of a column of lines as structs, by a plan of steps/parse_events.py (ParseEvents.java).

    `found` is a `field_set` that collects their fields.
    """
    from pyspark.sql.classic.column import Column as ClassicColumn

    spark = lines.sparkSession
    jvm: Any = spark._jvm
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    arguments = gateway.new_array(gateway.jvm.java.lang.Object, 4)
    utils = getattr(jvm.org.apache.spark.sql.classic, "ExpressionUtils$")
    expressions = getattr(utils, "MODULE$")
    arguments[0] = expressions.expression(lines[line]._jc)
    arguments[1] = plan.decode()
    arguments[2] = jvm.org.apache.spark.sql.types.DataType.fromJson(fields.json())
    arguments[3] = found
    made = _load(spark, "ParseEvents").getConstructors()[0].newInstance(arguments)
    return ClassicColumn(expressions.column(made))


def _load(spark: SparkSession, name: str) -> Any:
    """A class by its name, compiled once per Spark application."""
    context = spark.sparkContext
    if context not in _loaders:
        _loaders[context] = _compile(spark)
    return _loaders[context].loadClass(f"{PACKAGE}.{name}")


def _compile(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    texts = [
        (Path(__file__).parent / "java" / f"{name}.java").read_text(encoding="utf-8") for name in SOURCES
    ]
    folder = Path(tempfile.mkdtemp(prefix="headwater-classes-"))
    # executors may request the jar until Spark ends
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # Named by content: executors keep jars by name.
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
    jar = folder / f"headwater-{digest}.jar"
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        with zipfile.ZipFile(jar, "w") as archive:
            for text in texts:
                compiler = jvm.org.codehaus.janino.SimpleCompiler()
                compiler.setTargetVersion(8)  # calls of static methods of interfaces
                compiler.setParentClassLoader(loader)
                compiler.cook(text)
                loader = compiler.getClassLoader()
                codes = compiler.getBytecodes()
                for name in list(codes.keySet()):
                    archive.writestr(str(name).replace(".", "/") + ".class", bytes(codes.get(name)))
    except Exception as error:
        raise SparkUnavailable(
            f"the pipeline's Java classes could not be compiled by this Spark: {str(error).splitlines()[0]}.",
            hint=f"Use the Spark that `{install_command('pipeline')}` brings.",
        ) from error
    context: Any = spark.sparkContext
    context._jsc.addJar(str(jar))
    # One loader for all classes, as on executors: the driver evaluates expressions too, and classes of one
    # package may use each other's parts only if one loader has them all.
    urls = context._gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
    loader = jvm.java.net.URLClassLoader(urls, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    _register(spark, loader.loadClass(f"{PACKAGE}.EventCheck"))
    return loader


def _register(spark: SparkSession, check: Any) -> None:
    # Registered by name: py4j would take another overload of `functions.udf`, the one without input types.
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    text = jvm.org.apache.spark.sql.types.DataTypes.StringType
    session.udf().register(FUNCTION, check.getConstructors()[0].newInstance(None), text)
