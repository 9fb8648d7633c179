"""The operating system: files that survive a crash, permissions, addresses, the event loop."""
