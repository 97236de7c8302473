"""Read one variable of a MATLAB 5 file: numbers, cells and structs. No file can crash the process.

scipy.io.loadmat trusts sizes that it reads from the file, and one changed byte can crash it. Here every size is
checked against the bytes that are there.
"""

import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# Far more than annotations need: the largest of UCF-QNRF has 0.2 MB.
MOST_BYTES = 64 * 2**20
DEEPEST = 16
HEADER = 128
# Types of data elements, and classes of arrays, as MATLAB's "MAT-File Format" numbers them.
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MATRIX, COMPRESSED = 14, 15
CELL, STRUCT, NUMERIC, OPAQUE = 1, 2, range(6, 16), 17
COMPLEX = 0x08


@dataclass(frozen=True)
class Cells:
    """A cell array, in MATLAB's order: the first dimension runs fastest."""

    values: list["Value"]


@dataclass(frozen=True)
class Structs:
    """A struct array: for each element its fields, in their order."""

    values: list[dict[str, "Value"]]


Value = np.ndarray[Any, np.dtype[Any]] | Cells | Structs


def read_mat(path: Path, name: str) -> Value:
    """The variable of this name. A file that is damaged or lacks it raises a ValueError."""
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MB")
    content = path.read_bytes()
    if content[:8] == b"\x89HDF\r\n\x1a\n" or content[124:126] in (b"\x00\x02", b"\x02\x00"):
        raise ValueError("it is a MATLAB 7.3 file; save it with -v7")
    order = {b"IM": "<", b"MI": ">"}.get(content[126:HEADER])
    if order is None:
        raise ValueError("it is not a MATLAB 5 file")
    part = Reader(content[HEADER:], order)
    while part.left >= 8:
        kind, data = part.element()
        if kind == COMPRESSED:
            kind, data = Reader(_decompressed(data), order).element()
        if kind != MATRIX:
            continue
        found = _Matrix(Reader(data, order))
        if found.name == name:
            return found.value(DEEPEST)
    raise ValueError(f"it has no variable {name}")


def _decompressed(data: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"its compressed data are damaged: {error}") from error
    if not unpacker.eof:
        raise ValueError("its compressed data are too large, or cut off")
    return content


class Reader:
    """Data elements one after the other. order: of the bytes, < or >"""

    def __init__(self, content: bytes, order: str) -> None:
        self.content, self.order, self.at = content, order, 0

    @property
    def left(self) -> int:
        return len(self.content) - self.at

    def _take(self, count: int) -> bytes:
        if count > self.left:
            raise ValueError(f"it ends too early: {count} bytes are needed where {self.left} are left")
        self.at += count
        return self.content[self.at - count : self.at]

    def element(self) -> tuple[int, bytes]:
        """Type and data of the next element."""
        (tag,) = struct.unpack(f"{self.order}I", self._take(4))
        if tag >> 16:  # the small form: up to four bytes, within the tag
            data = self._take(4)
            if tag >> 16 > 4:
                raise ValueError(f"a small element has {tag >> 16} bytes instead of at most 4")
            return tag & 0xFFFF, data[: tag >> 16]
        (size,) = struct.unpack(f"{self.order}I", self._take(4))
        data = self._take(size)
        if tag != COMPRESSED:
            self.at = min(len(self.content), self.at + -size % 8)  # the last one may come without its padding
        return tag, data

    def numbers(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The next element, whose type may be a smaller one than the array's: MATLAB saves room."""
        kind, data = self.element()
        if kind not in NUMBERS:
            raise ValueError(f"numbers are needed, and there is an element of type {kind}")
        stored = np.dtype(self.order + NUMBERS[kind])
        if len(data) % stored.itemsize:
            raise ValueError(f"{len(data)} bytes are no whole count of numbers of {stored.itemsize} bytes")
        return np.frombuffer(data, stored).astype(stored.newbyteorder("="))

    def whole_numbers(self) -> np.ndarray[Any, np.dtype[Any]]:
        values = self.numbers()
        if values.dtype.kind not in "iu":
            raise ValueError("whole numbers are needed, and there are fractions")
        return values

    def text(self) -> str:
        return self.whole_numbers().astype(np.uint8).tobytes().decode("latin-1")


class _Matrix:
    """An array: flags, dimensions and name are read at once, its content when it is asked for."""

    def __init__(self, part: Reader) -> None:
        self.part, self.name, self.count = part, "", 0
        self.kind, self.shape = NUMERIC[0], (0, 0)
        if not part.left:  # how an empty array is written inside of cells
            return
        flags = part.whole_numbers()
        if len(flags) != 2:
            raise ValueError(f"the flags of an array need two numbers; got {len(flags)}")
        self.kind, self.flags = int(flags[0]) & 0xFF, int(flags[0]) >> 8 & 0xFF
        if self.kind == OPAQUE:  # an object of MATLAB's own, which has no dimensions
            return
        self.shape = tuple(part.whole_numbers().tolist())
        if not 2 <= len(self.shape) <= 32 or min(self.shape) < 0:
            raise ValueError(f"an array has the dimensions {self.shape[:8]}")
        self.count = math.prod(self.shape)
        self.name = part.text()

    def value(self, depth: int) -> Value:
        """depth: how many arrays within arrays are still allowed"""
        if depth < 1:
            raise ValueError(f"arrays are nested more than {DEEPEST} deep")
        if self.kind in NUMERIC:
            return self._numeric()
        if self.kind == CELL:
            return Cells([self._inner(depth) for _ in range(self._possible(1))])
        if self.kind == STRUCT:
            names = self._field_names()
            return Structs([{name: self._inner(depth) for name in names} for _ in range(self._possible(len(names)))])
        raise ValueError(f"numbers, cells or structs are needed, and there is an array of class {self.kind}")

    def _numeric(self) -> np.ndarray[Any, np.dtype[Any]]:
        if not self.part.left:
            return np.empty(self.shape if not self.count else 0)
        if self.flags & COMPLEX:
            raise ValueError("real numbers are needed, and there are complex ones")
        values = self.part.numbers()
        if len(values) != self.count:
            raise ValueError(f"an array of {self.shape} has {len(values)} numbers")
        return values.reshape(self.shape, order="F")

    def _possible(self, fields: int) -> int:
        """The number of elements, where there are bytes for so many: each array in them has a tag of eight."""
        if self.count * max(1, fields) > self.part.left // 8:
            raise ValueError(f"an array of {self.shape} with {fields} fields has {self.part.left} bytes")
        return self.count

    def _field_names(self) -> list[str]:
        lengths, text = self.part.whole_numbers(), self.part.text()
        length = int(lengths[0]) if len(lengths) == 1 else 0
        if length < 1 or len(text) % length:
            raise ValueError("the names of a struct's fields are damaged")
        names = [text[i : i + length].partition("\0")[0] for i in range(0, len(text), length)]
        if len(set(names)) != len(names):
            raise ValueError("two fields of a struct have one name")
        return names

    def _inner(self, depth: int) -> Value:
        kind, data = self.part.element()
        if kind != MATRIX:
            raise ValueError(f"an array is needed, and there is an element of type {kind}")
        return _Matrix(Reader(data, self.part.order)).value(depth - 1)
