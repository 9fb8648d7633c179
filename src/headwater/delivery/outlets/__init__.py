"""Where events are sent: one file per protocol, found by the entry point group `headwater.outlets`."""
