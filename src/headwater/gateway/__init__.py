"""The gateway: an event arrives, is validated, and is answered when it is on disk.

Start reading at `gateway`.
"""
