"""The gateway: an event arrives, is validated, and is answered when it is on disk.

Start reading at `lineage_routes` and `event_routes`; `gateway` puts the parts together.
"""
