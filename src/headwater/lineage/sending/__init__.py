"""A bounded queue of events and the transports that send them. Start reading at sender.py."""
