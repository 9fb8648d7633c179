"""Threads that decode the same type for the first time do not crash the process."""

from __future__ import annotations

import ast
import subprocess
import sys

from .sources import modules

# Without the lock this dies of SIGSEGV: a thread decodes with a type that another one has half prepared.
MANY_THREADS = """
import sys, threading
import msgspec
from headwater.formats.json_decoder import json_decoder
sys.setswitchinterval(1e-6)
CONTENT = msgspec.json.encode({f"f{i}": [{}] for i in range(20)})

def decode(kind, barrier):
    barrier.wait()
    json_decoder(kind).decode(CONTENT)

for _ in range(1000):
    inner = msgspec.defstruct("Inner", [(f"g{i}", int | None, None) for i in range(20)])
    kind = msgspec.defstruct("Outer", [(f"f{i}", list[inner]) for i in range(20)])
    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=decode, args=(kind, barrier)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
NO_STRUCTS = {"Any", "dict", "list", "tuple", "str", "int", "msgspec"}


def test_the_process_survives_when_threads_prepare_a_type_at_the_same_time() -> None:
    done = subprocess.run([sys.executable, "-c", MANY_THREADS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_structs_are_decoded_by_the_guarded_decoder_when_modules_are_read() -> None:
    violations = [
        f"{module.name} line {node.lineno}: use json_decoder"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "msgspec.json.decode"
        for keyword in node.keywords
        for name in ast.walk(keyword.value)
        if isinstance(name, ast.Name) and name.id not in NO_STRUCTS
    ]
    assert violations == []
