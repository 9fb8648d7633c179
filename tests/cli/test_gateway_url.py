"""Where the pipeline sends its own lineage."""

from __future__ import annotations

import pytest

from headwater.cli.pipeline import gateway_url
from headwater.settings import GatewaySettings, TlsSettings


@pytest.mark.parametrize(
    ("gateway", "expected"),
    [
        (GatewaySettings(), "http://127.0.0.1:8750"),
        (GatewaySettings(host="0.0.0.0", port=80), "http://127.0.0.1:80"),
        (GatewaySettings(host="::"), "http://[::1]:8750"),
        (GatewaySettings(host="fd00::7"), "http://[fd00::7]:8750"),
        (GatewaySettings(host="gate.example"), "http://gate.example:8750"),
        # the port is chosen at the start; the name in the certificate is unknown
        (GatewaySettings(port=0), ""),
        (GatewaySettings(tls=TlsSettings(certificate="c.pem", key="k.pem")), ""),
    ],
)
def test_the_gateway_is_found_from_the_same_machine_when_it_listens_anywhere(
    gateway: GatewaySettings, expected: str
) -> None:
    assert gateway_url(gateway) == expected
