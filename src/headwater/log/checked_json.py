"""Small JSON files with a checksum as their last member, so that no flipped bit moves a cursor.

They stay JSON for other readers. Files of earlier releases have no checksum, and are read as they are.
"""

from __future__ import annotations

import re
import zlib

import msgspec

# Also a damaged name of the member: that never passes for a file without a checksum.
_CHECKSUM = re.compile(rb',?("[^"]{8}"):"([^"]{8})"\}\Z')
_NAME = b'"checksum"'


def with_checksum(json: bytes) -> bytes:
    """Return an object with its checksum."""
    return b'%b%b"checksum":"%08x"}' % (json[:-1], b"," if json != b"{}" else b"", zlib.crc32(json))


def checked(data: bytes) -> bytes:
    """Return an object without its checksum; msgspec.DecodeError if it is not what was written."""
    found = _CHECKSUM.search(data)
    if found is None:
        return data
    json = data[: found.start()] + b"}"
    if found[1] != _NAME or found[2] != b"%08x" % zlib.crc32(json):
        raise msgspec.DecodeError("its checksum does not match")
    return json
