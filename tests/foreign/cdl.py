"""Read the text that ``ncdump -p 9,17`` prints (CDL) back into numbers and bytes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np

from tests.foreign.reading import Reading

_TYPES = {
    "byte": "i1", "ubyte": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "int64": "i8", "uint64": "u8",
    "float": "f4", "double": "f8", "char": "S1",
}  # fmt: skip
_SUFFIXES = [("UB", "u1"), ("US", "u2"), ("ULL", "u8"), ("UL", "u4"), ("U", "u4"), ("LL", "i8"), ("b", "i1"), ("s", "i2"), ("f", "f4")]
_TEXT = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|[0-7]{3}|.)", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"f": b"\f", b"b": b"\b", b"v": b"\v", b"a": b"\a"}
_DECLARATION = re.compile(r"(\w+) ((?:[^\s(\\]|\\.)+?)(?:\((.*)\))?$")


def with_ncdump(ncdump: str, path: Path) -> Reading:
    """Read everything that ncdump prints of a file."""
    done = subprocess.run([ncdump, "-p", "9,17", str(path)], capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, f"ncdump failed: {done.stderr[-2000:]!r}"
    return _Parser(done.stdout).reading


class _Parser:
    """One pass over the statements; groups nest, so their path is a stack."""

    def __init__(self, cdl: bytes) -> None:
        self.reading = Reading()
        self.types: dict[str, np.dtype] = {}
        self.sizes: list[dict[str, int]] = [{}]
        self.path: list[str] = []
        self.section = ""
        for statement in _statements(cdl):
            self._take(statement)

    def _take(self, statement: bytes) -> None:
        head = statement.lstrip()
        if head.startswith(b"group: ") and head.endswith(b"{"):
            self.path.append(_plain(head[7:-1].decode().strip()))
            self.sizes.append({})
            self.section = ""
        elif head.startswith(b"}"):
            if self.path:
                self.path.pop()
                self.sizes.pop()
        elif head in (b"dimensions:", b"variables:", b"data:"):
            self.section = head[:-1].decode()
        elif b" = " in head and self.section != "data" and re.match(rb"(?:[^\s:\"\\]|\\.)*:", head):
            self._attribute(head)
        elif self.section == "dimensions":
            name, _, size = head.decode().partition(" = ")
            unlimited = re.search(r"\((\d+) currently\)", size)
            self.sizes[-1][_plain(name)] = int(unlimited[1] if unlimited else size.rstrip(" ;"))
        elif self.section == "variables":
            self._declare(head.decode().removesuffix(" ;"))
        elif self.section == "data":
            self._data(head)

    def _declare(self, text: str) -> None:
        match = _DECLARATION.match(text)
        assert match, text
        full = self._full(_plain(match[2]))
        self.types[full] = np.dtype(_TYPES[match[1]])
        self.reading.dims[full] = tuple(_plain(d.strip()) for d in match[3].split(",")) if match[3] else ()

    def _attribute(self, head: bytes) -> None:
        owner, _, rest = head.partition(b":")
        name, _, value = rest.partition(b" = ")
        where = self._full(_plain(owner.decode())) if owner else self._full("")[:-1]
        self.reading.attributes[where, _plain(name.decode())] = _attribute_value(value.removesuffix(b" ;"))

    def _data(self, head: bytes) -> None:
        name, _, value = head.partition(b" =")
        full = self._full(_plain(name.decode()))
        shape = tuple(self._size(d) for d in self.reading.dims[full])
        dtype = self.types[full]
        value = value.removesuffix(b" ;")
        if dtype.kind == "S":
            width = shape[-1] if shape else 1
            texts = [_unescape(t) for t in _TEXT.findall(value)]
            flat = np.frombuffer(b"".join(t.ljust(width, b"\0") for t in texts), "S1")
        else:
            fill = self.reading.attributes.get((full, "_FillValue"))
            flat = _numbers(value, dtype, fill)
        self.reading.variables[full] = flat.reshape(shape)

    def _full(self, name: str) -> str:
        return "/" + "/".join([*self.path, name])

    def _size(self, dim: str) -> int:
        """Return the size of a dimension of this group or of the nearest one around it that has it."""
        return next(sizes[dim] for sizes in reversed(self.sizes) if dim in sizes)


def _statements(cdl: bytes) -> list[bytes]:
    """Split the text: a statement ends with ";", "{", "}" or, for a heading, ":" at the end of a line."""
    out, pending = [], []
    for line in cdl.split(b"\n")[1:]:
        bare = line.strip()
        if not pending and (not bare or bare.startswith(b"//")):
            continue
        # A comment after a dimension tells the size of an unlimited one.
        ends = bare.endswith((b";", b"currently)")) or (not pending and (bare[-1:] in (b"{", b"}", b":") or bare.startswith(b"}")))
        pending.append(bare)
        if ends:
            out.append(b"\n".join(pending))
            pending = []
    return out


def _attribute_value(value: bytes) -> np.ndarray:
    texts = _TEXT.findall(value)
    if texts:
        return np.array([_unescape(b"".join(texts)).rstrip(b"\0")], dtype=object)
    words = value.decode().replace("\n", " ").split(",")
    first = words[0].strip()
    for suffix, dtype in _SUFFIXES:
        if first.endswith(suffix) and first not in ("-Inf", "Inf", "inf"):
            return np.array([w.strip().removesuffix(suffix) for w in words]).astype(np.dtype(dtype))
    whole = re.fullmatch(r"-?\d+", first)
    return np.array([w.strip() for w in words]).astype(np.int32 if whole else np.float64)


def _numbers(value: bytes, dtype: np.dtype, fill: np.ndarray | None) -> np.ndarray:
    # Braces group what lies along a second unlimited dimension.
    words = value.translate(None, b"{}\n").split(b",")
    if dtype.kind == "f":
        missing = b"nan" if fill is None or np.isnan(fill[0]) else repr(float(fill[0])).encode()
        return np.array([missing if w.strip() == b"_" else w.strip(b" f") for w in words]).astype(dtype)
    assert b"_" not in value, "a whole number is shown as missing"
    return np.array([int(w) for w in words], dtype)


def _plain(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name.strip())


def _unescape(text: bytes) -> bytes:
    def one(match: re.Match[bytes]) -> bytes:
        what = match[1]
        if what[:1] == b"x" and len(what) == 3:
            return bytes([int(what[1:], 16)])
        if len(what) == 3:
            return bytes([int(what, 8)])
        return _LETTERS.get(what, what)

    return _ESCAPE.sub(one, text)
