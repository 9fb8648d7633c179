"""Events become rows: route, enrich, map, type, project, stage and load, on Spark."""
