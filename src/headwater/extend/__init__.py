"""The public API for extensions: one module for each entry point group. Start reading at `outlets`."""
