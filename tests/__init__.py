"""Tests, one folder a stage. A package, so that a test can import a corpus that lies beside it."""
