"""Names of datasets by the OpenLineage naming rules. Start reading at names.py."""
