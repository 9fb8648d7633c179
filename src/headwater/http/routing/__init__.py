"""Endpoints, declared once: requests are routed by them, and OpenAPI is generated from them."""
