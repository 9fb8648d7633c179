"""A catalog of tables that take MERGE, UPDATE and DELETE, for plans that are analyzed and never run.

Spark's own in-memory one is in its test jars alone; this much Java, compiled by Spark's Janino, is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["install_catalogs"]

_TABLE = """
package headwater.rows;

import java.util.*;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.*;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

public class RowsTable implements Table, SupportsRead, SupportsWrite, SupportsRowLevelOperations {
    private final String name;
    private final Column[] columns;
    private final boolean delta;

    public RowsTable(String name, Column[] columns, boolean delta) {
        this.name = name;
        this.columns = columns;
        this.delta = delta;
    }

    public String name() { return name; }
    public Column[] columns() { return columns; }
    public StructType schema() { return CatalogV2Util.v2ColumnsToStructType(columns); }

    public Set capabilities() {
        return new HashSet(Arrays.asList(new Object[] {
            TableCapability.BATCH_READ, TableCapability.BATCH_WRITE, TableCapability.OVERWRITE_BY_FILTER}));
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) { return null; }
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) { return null; }

    public RowLevelOperationBuilder newRowLevelOperationBuilder(final RowLevelOperationInfo info) {
        final boolean asDelta = delta;
        return new RowLevelOperationBuilder() {
            public RowLevelOperation build() {
                return asDelta ? (RowLevelOperation) new Delta(info.command()) : new Groups(info.command());
            }
        };
    }

    public static class Groups implements RowLevelOperation {
        private final RowLevelOperation.Command command;
        public Groups(RowLevelOperation.Command command) { this.command = command; }
        public RowLevelOperation.Command command() { return command; }
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) { return null; }
        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) { return null; }
    }

    public static class Delta extends Groups implements SupportsDelta {
        public Delta(RowLevelOperation.Command command) { super(command); }
        public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) { return null; }
        public NamedReference[] rowId() { return new NamedReference[] {Expressions.column("id")}; }
    }
}
"""

_CATALOG = """
package headwater.rows;

import java.util.*;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

public class RowsCatalog implements TableCatalog {
    private final Map tables = new HashMap();
    private String name;
    private boolean delta;

    public void initialize(String name, CaseInsensitiveStringMap options) {
        this.name = name;
        this.delta = options.getBoolean("delta", false);
    }

    public String name() { return name; }
    public Identifier[] listTables(String[] namespace) { return new Identifier[0]; }

    public Table loadTable(Identifier ident) throws NoSuchTableException {
        Object found = tables.get(ident.name());
        if (found == null) {
            throw new NoSuchTableException(ident);
        }
        return (Table) found;
    }

    public Table createTable(Identifier ident, Column[] columns, Transform[] partitions, Map properties) {
        Table made = new RowsTable(ident.name(), columns, delta);
        tables.put(ident.name(), made);
        return made;
    }

    public Table createTable(Identifier ident, StructType schema, Transform[] partitions, Map properties) {
        throw new UnsupportedOperationException();
    }

    public Table alterTable(Identifier ident, TableChange[] changes) { return null; }
    public boolean dropTable(Identifier ident) { return tables.remove(ident.name()) != null; }
    public void renameTable(Identifier from, Identifier to) { }
}
"""


def install_catalogs(spark: SparkSession) -> None:
    """Catalogs `rows`, which replaces groups of rows, and `deltas`, which writes changes by the key `id`."""
    jvm: Any = spark._jvm
    thread = jvm.java.lang.Thread.currentThread()
    loader = before = thread.getContextClassLoader()
    for text in (_TABLE, _CATALOG):
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(text)
        loader = compiler.getClassLoader()
    thread.setContextClassLoader(loader)
    try:
        for name, delta in (("rows", "false"), ("deltas", "true")):
            spark.conf.set(f"spark.sql.catalog.{name}", "headwater.rows.RowsCatalog")
            spark.conf.set(f"spark.sql.catalog.{name}.delta", delta)
            session: Any = spark._jsparkSession
            session.sessionState().catalogManager().catalog(name)  # loaded now, by this thread's loader
    finally:
        thread.setContextClassLoader(before)
