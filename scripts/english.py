"""Checks the English of docstrings, comments, messages, names, templates and docs.

    python scripts/english.py [PATH ...]

Prints `file:line: word: the line` for each finding and exits with 1 if there is one. The words are those
that read well in a story and say nothing in a manual: "told" may mean sent, recorded, returned or known.
A line that must keep such a word (a quotation, the name of a thing) is listed in ALLOWED with its reason.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHECKED = (
    "src",
    "tests",
    "bench",
    "scripts",
    "docs",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
)
LEFT_OUT = ("tests/cases", "docs/img", "scripts/english.py")

# The pattern, and the words to think of instead.
REFUSED = {
    r"tell|tells|told|telling|tells of|teller": "report, record, send, return, state, distinguish",
    r"hear|hears|heard|hearing": "receive, observe",
    r"mend|mends|mended|mending": "repair, fix",
    r"(?:is|are|was|were|be|been) away": "is unreachable",
    r"anew": "again",
    r"for ever": "forever, until it succeeds, without limit",
    r"but for": "except",
    r"nobody|somebody|anybody|everybody|whoever|whomever": "name the subject",
    r"lean|leans|leant|leaning": "depend on, use",
    r"comes? home|came home": "return",
    r"unwell|harms? no": "fail, affect",
    r"seeds? 00\d|KI\d|\bU\d\b|\bD[1-9]\b(?!\w)": "a reference that the reader can follow, or none",
}
_WORDS = re.compile(
    "|".join(rf"(?P<g{n}>\b(?:{pattern})\b)" for n, pattern in enumerate(REFUSED)), re.IGNORECASE
)
_INSTEAD = list(REFUSED.values())

# (end of the path, part of the line, reason)
ALLOWED: tuple[tuple[str, str, str], ...] = ()


def main(arguments: list[str]) -> int:
    """Prints the findings; 1 if there are any."""
    findings = 0
    for path in _files([Path(argument) for argument in arguments] or [ROOT / name for name in CHECKED]):
        for line_number, text in _prose(path):
            for match in _WORDS.finditer(text):
                line = text.strip().splitlines()[0] if text.strip() else ""
                if _is_allowed(path, text):
                    continue
                findings += 1
                at = line_number + text.count("\n", 0, match.start())
                instead = _INSTEAD[int(str(match.lastgroup)[1:])]
                found = text[: match.end()].splitlines()[-1] + text[match.end() :].split("\n", 1)[0]
                print(f"{path}:{at}: `{match.group()}` (write: {instead}): {found.strip() or line}"[:240])
    if findings:
        print(f"english: {findings} findings. Rewrite the sentence: subject, active verb, technical noun.")
    return 1 if findings else 0


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            relative = (
                str(file.resolve().relative_to(ROOT)) if file.resolve().is_relative_to(ROOT) else str(file)
            )
            if file.is_file() and "__pycache__" not in relative and not relative.startswith(LEFT_OUT):
                yield file


def _is_allowed(path: Path, text: str) -> bool:
    return any(str(path).endswith(end) and part in text for end, part, _ in ALLOWED)


def _prose(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the text of everything that a person reads in a file."""
    if path.suffix == ".py":
        source = path.read_text()
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.lineno, node.value
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield node.lineno, node.name.replace("_", " ")
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.lineno, node.id.replace("_", " ")
    elif path.suffix in (".java", ".js", ".css", ".html", ".md", ".yml", ".yaml", ".toml", ".sh"):
        yield 1, path.read_text()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
