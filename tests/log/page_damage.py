"""Damage as disks do it, as a string of bytes that Hypothesis and a fuzzer can search and shrink."""

from __future__ import annotations

import random

OP_BYTES = 6
PAGES = (512, 4096, 16 * 1024)  # a sector, a block of the file system, a page of ours


def damaged(content: bytes, data: bytes) -> bytes:
    """The content of a file after the changes that `data` names, six bytes a change."""
    for start in range(0, len(data) - OP_BYTES + 1, OP_BYTES):
        content = _change(content, data[start : start + OP_BYTES])
    return content


def _change(content: bytes, op: bytes) -> bytes:
    kind, size, at, other = op[0] % 8, PAGES[op[1] % 3], op[2] << 8 | op[3], op[4] << 8 | op[5]
    if not content:
        return content
    place = at * size % (len(content) + size - 1) // size * size
    second = other * size % (len(content) + size - 1) // size * size
    page = content[place : place + size]
    match kind:
        case 0:  # a block that was never written
            return content[:place] + bytes(len(page)) + content[place + size :]
        case 1:  # two blocks in each other's place
            low, high = sorted((place, second))
            if low == high:
                return content
            first, last = content[low : low + size], content[high : high + size]
            return content[:low] + last + content[low + size : high] + first + content[high + size :]
        case 2:  # a block that was written to the wrong place
            return content[:second] + page + content[second + len(page) :]
        case 3:  # a bit
            byte = (at << 8 | op[4]) % len(content)
            return content[:byte] + bytes([content[byte] ^ 1 << op[5] % 8]) + content[byte + 1 :]
        case 4:  # an end that did not reach the disk
            return content[: max(0, len(content) - other % (size + 1))]
        case 5:  # a block of something else
            noise = random.Random(other).randbytes(len(page))
            return content[:place] + noise + content[place + size :]
        case 6:  # a block of zeros at the end, as file systems leave after a power cut
            return content + bytes(size)
        case _:  # a byte
            byte = (at << 8 | op[4]) % len(content)
            return content[:byte] + op[5:6] + content[byte + 1 :]
