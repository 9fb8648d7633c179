"""A server with as many outlets and tokens as a large installation has."""

from __future__ import annotations

from pathlib import Path

import httpx2
import psutil
import pytest

from headwater.testing import OpenLineageServer
from headwater.testing.processes import HeadwaterProcess
from tests.support.server import EVENT
from tests.support.waiting import wait_until

OUTLETS, TOKENS = 300, 1000
MAX_THREADS = 64
MAX_BYTES = 200 * 1024 * 1024


@pytest.mark.long
def test_threads_and_memory_stay_few_when_there_are_300_outlets_and_1000_tokens(tmp_path: Path) -> None:
    with OpenLineageServer() as backend:
        settings = {
            "gateway": {"port": 0},
            "outlets": [{"name": f"o{i}", "type": "openlineage", "url": backend.url} for i in range(OUTLETS)],
            "tokens": [{"id": f"t{i}", "server_secret": f"secret-{i}"} for i in range(TOKENS)],
        }
        with HeadwaterProcess(tmp_path, "serve", settings=settings) as server:
            with httpx2.Client(base_url=server.url) as client:
                assert client.post("/api/v1/lineage", json=EVENT).status_code == 200
                for i in range(TOKENS):
                    headers = {"X-Auth-Token": f"secret-{i}"}
                    assert client.post("/api/v1/s2s/event", json={"i": i}, headers=headers).status_code == 200
            wait_until(lambda: len(backend.events()) == OUTLETS)
            process = psutil.Process(server.pid)
            assert process.num_threads() <= MAX_THREADS
            assert process.memory_info().rss <= MAX_BYTES
            assert server.stop() == 0
    files = sorted((tmp_path / "headwater-data" / "events" / "incoming").glob("incoming.tok=*.log"))
    assert len(files) == TOKENS
    assert sorted(
        int(file.read_bytes().partition(b'"i":')[2].partition(b"}")[0].partition(b",")[0]) for file in files
    ) == list(range(TOKENS))
