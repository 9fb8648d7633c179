"""The standard facets and Spark's own, as dicts that are ready to be sent."""
