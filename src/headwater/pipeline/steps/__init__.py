"""The steps that turn events into rows, one module a step. `pipeline.load` calls them in order."""
