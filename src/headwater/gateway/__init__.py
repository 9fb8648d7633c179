"""Stage 1: an event arrives, is checked, and is answered once it is on disk."""
