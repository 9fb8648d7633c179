"""The OpenAPI description of the gateway. Start reading at `document`."""
