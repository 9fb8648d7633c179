"""Outlets: one module per protocol, found by the entry point group `headwater.outlets`."""
