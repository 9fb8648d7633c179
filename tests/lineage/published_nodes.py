"""A node of a JVM extension compiled against the published package of OpenLineage's interfaces, a jar."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.lineage.java_nodes import BODY, RULE, Node, compiled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Published"]

_NODE = """
package headwater.published;

import java.util.*;
import io.openlineage.spark.shade.client.OpenLineage;
import io.openlineage.spark.shade.client.utils.DatasetIdentifier;
import io.openlineage.spark.shade.extension.v1.*;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.collection.immutable.Seq;

public class Ledger extends LogicalPlan implements InputLineageNode, OutputLineageNode {
{body}
    public List getInputs(String event, OpenLineage openLineage) {
        return Collections.singletonList(new InputDatasetWithIdentifier(
            new DatasetIdentifier("entries", "ledger://acme"),
            new OpenLineage.DatasetFacetsBuilder().version(openLineage.newDatasetVersionDatasetFacet("42")),
            new OpenLineage.InputDatasetInputFacetsBuilder()));
    }

    public List getOutputs(String event, OpenLineage openLineage) {
        LogicalPlan at = (LogicalPlan) inside.child();
        while (!at.children().isEmpty()) { at = (LogicalPlan) at.children().head(); }
        return Collections.singletonList(new OutputDatasetWithDelegate(
            at,
            new OpenLineage.DatasetFacetsBuilder().version(openLineage.newDatasetVersionDatasetFacet("43")),
            new OpenLineage.OutputDatasetOutputFacetsBuilder().outputStatistics(
                openLineage.newOutputStatisticsOutputDatasetFacet(
                    Long.valueOf(7L), Long.valueOf(70L), Long.valueOf(1L)))));
    }
}
"""


class Published(Node):
    """Describes its inputs by name and its outputs by delegate; that package has no column lineage."""

    def __init__(self, spark: SparkSession, jar: Path) -> None:
        rule = RULE.replace("headwater.acme{number}", "headwater.published")
        loader = compiled(spark, [_NODE.replace("{body}", BODY), rule], jar)
        super().__init__(spark, "headwater.published", loader)
