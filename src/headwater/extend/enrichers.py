"""The API of enrichers, which look values up; the contract is `headwater.pipeline.steps.enrich.base`."""

from headwater.destinations.column_types import Kind
from headwater.errors import ExtensionError, SettingsError
from headwater.pipeline.steps.enrich.base import Enricher, Found
from headwater.settings import PipelineSettings

__all__ = ["Enricher", "ExtensionError", "Found", "Kind", "PipelineSettings", "SettingsError"]
