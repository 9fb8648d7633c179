"""A real server that speaks S3, for tests: moto's, as a process of its own on loopback."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import Any, Self

from tests.parts.cache import Missing
from tests.parts.loopback import LoopbackServer

__all__ = ["ObjectStore"]

KEY, SECRET = "test-key", "test-secret"


class ObjectStore(LoopbackServer):
    """Runs while it is entered, with one bucket, `bucket`."""

    name = "moto's server"
    bucket = "headwater-tests"

    def __init__(self) -> None:
        if any(importlib.util.find_spec(name) is None for name in ("moto", "flask")):
            raise Missing("moto's server is missing: pip install 'moto[s3,server]'")
        super().__init__()

    def url(self, prefix: str) -> str:
        """A folder in the bucket, as pyarrow reads it; the secret is part of it."""
        where = f"endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"
        return f"s3://{KEY}:{SECRET}@{self.bucket}/{prefix}?{where}"

    def filesystem(self) -> Any:
        from pyarrow import fs

        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def objects(self, prefix: str = "") -> list[str]:
        """The names of all objects, or of those in a folder."""
        from pyarrow import fs

        folder = f"{self.bucket}/{prefix}".rstrip("/")
        selected = fs.FileSelector(folder, recursive=True, allow_not_found=True)
        found = self.filesystem().get_file_info(selected)
        return [each.path.removeprefix(f"{self.bucket}/") for each in found if each.is_file]

    def keys(self, prefix: str) -> list[str]:
        """The keys of all objects with a prefix, also of the empty ones that stand for folders."""
        import boto3

        client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )
        found = client.list_objects_v2(Bucket=self.bucket, Prefix=prefix)
        return [each["Key"] for each in found.get("Contents", ())]

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def __enter__(self) -> Self:
        super().__enter__()
        self.filesystem().create_dir(self.bucket)
        return self
