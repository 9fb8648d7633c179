"""A node of a JVM extension with lineage methods, compiled in the test by Spark's Janino.

The interfaces are written here by their names: they have moved several times, and the node is compiled
against each of their homes. published_nodes.py has one for the package that can be had.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BODY", "HOMES", "RULE", "Extension", "Node", "compiled", "merged_rows"]

# package of the interfaces, and whether their methods want (event name, builder) or a context
HOMES = {
    "io.openlineage.spark.builtin.nodes": False,
    "io.openlineage.spark.extension.scala.v1": False,
    "io.openlineage.spark.builtin.scala.v1": False,
    "io.openlineage.spark.shade.extension.v1": True,
    "com.acme.shaded.openlineage.v1": True,
}

_CLIENT = """
package {home};
import java.util.*;
public class OpenLineage {
    public final java.net.URI producer;
    public OpenLineage(java.net.URI producer) { this.producer = producer; }
    public Version newVersion(String text) { return new Version(producer, text); }
    public static class Version {
        private final java.net.URI producer;
        private final String text;
        public Version(java.net.URI producer, String text) { this.producer = producer; this.text = text; }
        public java.net.URI get_producer() { return producer; }
        public String getDatasetVersion() { return text; }
        public Map getAdditionalProperties() { return Collections.singletonMap("branch", "main"); }
    }
    public static class Facets {
        private final Version version;
        public Facets(Version version) { this.version = version; }
        public Version getVersion() { return version; }
        public Object getSchema() { return null; }
    }
    public static class DatasetFacetsBuilder {
        private Version version;
        public DatasetFacetsBuilder version(Version version) { this.version = version; return this; }
        public Facets build() { return new Facets(version); }
    }
}
"""

_PARTS = """
package {home};
public class Parts {
    public static class DatasetIdentifier {
        private final String name; private final String namespace;
        public DatasetIdentifier(String name, String namespace) {
            this.name = name;
            this.namespace = namespace;
        }
        public String getName() { return name; }
        public String getNamespace() { return namespace; }
    }
    public static class OlExprId {
        private final long exprId;
        public OlExprId(long exprId) { this.exprId = exprId; }
        public long exprId() { return exprId; }
    }
    public static class DatasetWithIdentifier {
        private final DatasetIdentifier datasetIdentifier;
        private final OpenLineage.DatasetFacetsBuilder facetsBuilder;
        public DatasetWithIdentifier(DatasetIdentifier id, OpenLineage.DatasetFacetsBuilder facets) {
            this.datasetIdentifier = id; this.facetsBuilder = facets;
        }
    }
    public static class OutputDatasetWithDelegate {
        private final Object node;
        private final OpenLineage.DatasetFacetsBuilder facetsBuilder;
        public OutputDatasetWithDelegate(Object node, OpenLineage.DatasetFacetsBuilder facets) {
            this.node = node; this.facetsBuilder = facets;
        }
    }
    public static class InputDatasetFieldFromDelegate {
        private final Object delegate;
        public InputDatasetFieldFromDelegate(Object delegate) { this.delegate = delegate; }
    }
    public static class OutputDatasetField {
        private final String field; private final OlExprId exprId;
        public OutputDatasetField(String field, OlExprId exprId) { this.field = field; this.exprId = exprId; }
    }
    public static class ExpressionDependencyWithDelegate {
        private final OlExprId outputExprId; private final Object expression;
        public ExpressionDependencyWithDelegate(OlExprId id, Object expression) {
            this.outputExprId = id; this.expression = expression;
        }
    }
    public static class ExpressionDependencyWithIdentifier {
        private final OlExprId outputExprId; private final java.util.List inputExprIds;
        public ExpressionDependencyWithIdentifier(OlExprId id, java.util.List inputs) {
            this.outputExprId = id; this.inputExprIds = inputs;
        }
    }
}
"""

_CONTEXT = """
package {home};
public interface OpenLineageContext {
    OpenLineage openLineage();
    String sparkListenerEventName();
}
"""

_INTERFACE = """
package {home};
public interface {name} {
    {methods}
}
"""

_INTERFACES = {
    "InputLineageNode": ("getInputs",),
    "OutputLineageNode": ("getOutputs",),
    "ColumnLevelLineageNode": (
        "columnLevelLineageInputs",
        "columnLevelLineageOutputs",
        "columnLevelLineageDependencies",
    ),
}

BODY = """    private final Project inside;

    public Ledger(Project inside) { this.inside = inside; }
    public Project inside() { return inside; }

    public Seq output() { return inside.output(); }
    public Seq children() { return inside.children(); }
    public TreeNode withNewChildrenInternal(scala.collection.immutable.IndexedSeq kids) {
        return new Ledger((Project) inside.copy(inside.projectList(), (LogicalPlan) kids.head()));
    }
    public int productArity() { return 1; }
    public Object productElement(int at) { return inside; }
    public boolean canEqual(Object other) { return other instanceof Ledger; }
    public boolean equals(Object other) { return this == other; }
    public int hashCode() { return 7; }
"""

_NODE = """
package headwater.acme{number};

import java.util.*;
import {home}.*;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.collection.immutable.Seq;

public class Ledger extends LogicalPlan
        implements InputLineageNode, OutputLineageNode, ColumnLevelLineageNode {
{body}
    public List getInputs({parameters}) {
        return Collections.singletonList(new Parts.DatasetWithIdentifier(
            new Parts.DatasetIdentifier("entries", "ledger://acme"),
            new OpenLineage.DatasetFacetsBuilder().version({builder}.newVersion("42"))));
    }

    public List getOutputs({parameters}) {
        return Collections.singletonList(new Parts.OutputDatasetWithDelegate(
            relation(), new OpenLineage.DatasetFacetsBuilder().version({builder}.newVersion("43"))));
    }

    private Object relation() {
        LogicalPlan at = (LogicalPlan) inside.child();
        while (!at.children().isEmpty()) { at = (LogicalPlan) at.children().head(); }
        return at;
    }

    public List columnLevelLineageInputs({parameters}) {
        return Collections.singletonList(new Parts.InputDatasetFieldFromDelegate(inside.child()));
    }

    public List columnLevelLineageOutputs({parameters}) {
        List found = new ArrayList();
        scala.collection.Iterator it = output().iterator();
        while (it.hasNext()) {
            Attribute one = (Attribute) it.next();
            found.add(new Parts.OutputDatasetField(one.name(), new Parts.OlExprId(one.exprId().id())));
        }
        return found;
    }

    public List columnLevelLineageDependencies({parameters}) {
        List found = new ArrayList();
        scala.collection.Iterator it = inside.projectList().iterator();
        while (it.hasNext()) {
            NamedExpression one = (NamedExpression) it.next();
            Parts.OlExprId id = new Parts.OlExprId(one.exprId().id());
            Expression from = (Expression) ((Expression) one).children().head();
            if (from instanceof Attribute) {
                found.add(new Parts.ExpressionDependencyWithIdentifier(id, Collections.singletonList(
                    new Parts.OlExprId(((NamedExpression) from).exprId().id()))));
            } else {
                found.add(new Parts.ExpressionDependencyWithDelegate(id, from));
            }
        }
        return found;
    }
}
"""

# Spark cannot run a node that it does not know: while it optimizes, it takes what is inside.
RULE = """
package headwater.acme{number};

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;

public class Unwrap extends Rule {
    public TreeNode apply(TreeNode plan) {
        return (LogicalPlan) ((LogicalPlan) plan).transformUp(new Inside());
    }

    public static class Inside extends scala.runtime.AbstractPartialFunction {
        public boolean isDefinedAt(Object one) { return one instanceof Ledger; }
        public Object applyOrElse(Object one, scala.Function1 otherwise) {
            return one instanceof Ledger ? ((Ledger) one).inside() : otherwise.apply(one);
        }
    }
}
"""


_MERGE = """
package com.acme.spark;

import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.collection.immutable.Seq;

public class MergeRows extends LogicalPlan {
    private final Seq matchedOutputs;
    private final Seq notMatchedOutputs;
    private final Project inside;

    public MergeRows(Seq matchedOutputs, Seq notMatchedOutputs, Project inside) {
        this.matchedOutputs = matchedOutputs;
        this.notMatchedOutputs = notMatchedOutputs;
        this.inside = inside;
    }

    public Seq matchedOutputs() { return matchedOutputs; }
    public Seq notMatchedOutputs() { return notMatchedOutputs; }
    public Project inside() { return inside; }
    public Seq output() { return inside.output(); }
    public Seq children() { return inside.children(); }
    public TreeNode withNewChildrenInternal(scala.collection.immutable.IndexedSeq kids) {
        Project changed = (Project) inside.copy(inside.projectList(), (LogicalPlan) kids.head());
        return new MergeRows(matchedOutputs, notMatchedOutputs, changed);
    }
    public int productArity() { return 3; }
    public Object productElement(int at) {
        return at == 0 ? matchedOutputs : at == 1 ? (Object) notMatchedOutputs : inside;
    }
    public boolean canEqual(Object other) { return other instanceof MergeRows; }
    public boolean equals(Object other) { return this == other; }
    public int hashCode() { return 11; }
}
"""


_merge: dict[str, Any] = {}


def merged_rows(spark: SparkSession, table: DataFrame) -> Any:
    """A frame whose root is a node of a foreign extension that says nothing of itself."""
    if not _merge:
        rule = RULE.replace("headwater.acme{number}", "com.acme.spark").replace("Ledger", "MergeRows")
        _merge["loader"] = compiled(spark, [_MERGE, rule])
    loader = _merge["loader"]
    matched: Any = table.selectExpr("a as x", "upper(b) as y")
    other: Any = table.selectExpr("a + 1 as x", "concat(b, a) as y")
    java: Any = spark
    lists = []
    for frame in (matched, other):
        project = frame._jdf.queryExecution().analyzed()
        aliases = [project.projectList().apply(place) for place in range(2)]
        row = _seq(java, [alias.child() for alias in aliases])
        lists.append(_seq(java, [row]))
    project = matched._jdf.queryExecution().analyzed()
    made = _new(java, loader, "com.acme.spark.MergeRows", *lists, project)
    return _frame(java, made, _new(java, loader, "com.acme.spark.Unwrap"))


def compiled(spark: SparkSession, texts: list[str], jar: Path | None = None) -> Any:
    """The loader of classes that were compiled one after the other, with a jar on their class path."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if jar is not None:
        gateway: Any = spark.sparkContext._gateway
        places = gateway.new_array(jvm.java.net.URL, 1)
        places[0] = jvm.java.io.File(str(jar)).toURI().toURL()
        loader = jvm.java.net.URLClassLoader(places, loader)
    for text in texts:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(text)
        loader = compiler.getClassLoader()
    return loader


def _seq(spark: Any, items: list[Any]) -> Any:
    return spark._jvm.scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq()


def _new(spark: Any, loader: Any, name: str, *arguments: Any) -> Any:
    gateway = spark.sparkContext._gateway
    array = gateway.new_array(gateway.jvm.java.lang.Object, len(arguments))
    for place, argument in enumerate(arguments):
        array[place] = argument
    return loader.loadClass(name).getConstructors()[0].newInstance(array)


def _frame(spark: Any, plan: Any, rule: Any) -> Any:
    getattr(spark._jsparkSession.experimental(), "extraOptimizations_$eq")(_seq(spark, [rule]))
    return spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)


class Node:
    """A node of an extension, in the place of a projection."""

    def __init__(self, spark: SparkSession, package: str, loader: Any) -> None:
        self.spark: Any = spark
        self._package = package
        self._loader = loader

    def frame(self, frame: DataFrame) -> Any:
        """The frame of a `select`, whose projection has become a node of the extension."""
        java: Any = frame
        made = _new(
            self.spark, self._loader, f"{self._package}.Ledger", java._jdf.queryExecution().analyzed()
        )
        return _frame(self.spark, made, _new(self.spark, self._loader, f"{self._package}.Unwrap"))


class Extension(Node):
    """The extension compiled against one home of the interfaces."""

    def __init__(self, spark: SparkSession, home: str, number: int) -> None:
        newer = HOMES[home]
        parameters = "String event, OpenLineage openLineage" if newer else "OpenLineageContext context"
        texts = [_CLIENT, _PARTS, _CONTEXT]
        for name, methods in _INTERFACES.items():
            lines = " ".join(f"java.util.List {method}({parameters});" for method in methods)
            texts.append(_INTERFACE.replace("{name}", name).replace("{methods}", lines))
        texts += [_NODE, RULE]
        names = {
            "{body}": BODY,
            "{home}": home,
            "{number}": str(number),
            "{parameters}": parameters,
            "{builder}": "openLineage" if newer else "context.openLineage()",
        }
        filled = []
        for text in texts:
            for key, value in names.items():
                text = text.replace(key, value)
            filled.append(text)
        super().__init__(spark, f"headwater.acme{number}", compiled(spark, filled))
