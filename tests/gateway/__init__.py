"""Tests of stage 1, the gateway."""
