"""Stage 3a: events are sent on, in order, until the receiver has them."""
