"""For people who extend Headwater: conformance suites and small real servers to test against."""
