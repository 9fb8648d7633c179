"""The zstd of the standard library, which Python before 3.14 gets from a backport."""

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
else:
    from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

__all__ = ["DecompressionParameter", "ZstdDecompressor", "ZstdError"]
