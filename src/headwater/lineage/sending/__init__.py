"""A bounded queue of events and the transports that send them; start at sender.py."""
