"""Validation against the OpenLineage schema. Start reading at `validator.Validator`."""
