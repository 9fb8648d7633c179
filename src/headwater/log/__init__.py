"""The log: keeps acknowledged events in order until every reader has finished them.

Start reading at `queue.log`; `event_sink` is for events that become tables.
"""
