"""Our reader of MATLAB 5 files agrees with scipy's on valid files, and raises ValueError for every broken one."""

import contextlib
import io
import random
import struct
import zlib

import numpy as np
import pytest
import scipy.io

from acda.training.data import mat_files
from acda.training.data.mat_files import Cells, Structs, read_mat

POINTS = np.array([[3.5, 4.25], [30.5, 20.75], [39.0, 29.0]])


def nested(points=POINTS):
    """ShanghaiTech's layout: a struct in a cell."""
    inner = np.zeros((1, 1), dtype=[("location", object), ("number", object)])
    inner[0, 0] = (points, np.array([[len(points)]]))
    info = np.empty((1, 1), dtype=object)
    info[0, 0] = inner
    return info


def saved(compressed=False, **variables) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, variables, do_compression=compressed)
    return file.getvalue()


@pytest.fixture
def read(tmp_path):
    def of(content: bytes, name: str):
        (tmp_path / "a.mat").write_bytes(content)
        return read_mat(tmp_path / "a.mat", name)

    return of


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?"])
@pytest.mark.parametrize("shape", [(3, 2), (0, 2), (2, 3, 4), (1, 1)])
def test_numbers_equal_scipys(read, compressed, dtype, shape):
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    content = saved(compressed, other="text", wanted=values)
    expected = scipy.io.loadmat(io.BytesIO(content))["wanted"]
    np.testing.assert_array_equal(read(content, "wanted"), expected)


@pytest.mark.parametrize("compressed", [False, True])
def test_cells_and_structs(read, compressed):
    info = read(saved(compressed, image_info=nested()), "image_info")
    assert isinstance(info, Cells)
    (structs,) = info.values
    assert isinstance(structs, Structs)
    assert list(structs.values[0]) == ["location", "number"]
    np.testing.assert_array_equal(structs.values[0]["location"], POINTS)
    several = read(saved(compressed, c=np.array([1.5, np.zeros((0, 0)), np.array([[2, 3]])], dtype=object)), "c")
    assert [value.tolist() for value in several.values] == [[[1.5]], [], [[2, 3]]]


def element(order: str, kind: int, data: bytes) -> bytes:
    return struct.pack(f"{order}II", kind, len(data)) + data + bytes(-len(data) % 8)


def by_hand(order: str, compressed=False, kind=2, data=b"\x01\x02\x03\x04\x05\x06") -> bytes:
    """A double array of 3×2 that is stored as bytes, as MATLAB does where the values allow it; and a small element."""
    body = element(order, 6, struct.pack(f"{order}II", 6, 0)) + element(order, 5, struct.pack(f"{order}ii", 3, 2))
    body += struct.pack(f"{order}I", 1 << 16 | 1) + b"p\0\0\0" + element(order, kind, data)
    matrix = element(order, 14, body)
    if compressed:
        packed = zlib.compress(matrix)
        matrix = struct.pack(f"{order}II", 15, len(packed)) + packed
    mark = b"IM" if order == "<" else b"MI"
    return b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack(f"{order}H", 0x0100) + mark + matrix


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
def test_both_byte_orders_and_numbers_stored_as_smaller_types(read, order, compressed):
    content = by_hand(order, compressed)
    assert read(content, "p").tolist() == [[1, 4], [2, 5], [3, 6]]
    np.testing.assert_array_equal(read(content, "p"), scipy.io.loadmat(io.BytesIO(content))["p"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a MATLAB 5 file"),
        (b"x" * 400, "not a MATLAB 5 file"),
        (b"\x89HDF\r\n\x1a\n" + bytes(400), "MATLAB 7.3 file; save it with -v7"),
        (by_hand("<", kind=16), "numbers are needed, and there is an element of type 16"),
        (by_hand("<", kind=9), "6 bytes are no whole count of numbers of 8 bytes"),
        (by_hand("<", data=b"123"), r"an array of \(3, 2\) has 3 numbers"),
        (by_hand("<")[:-8], "ends too early"),
        (by_hand("<", compressed=True)[:-8], "ends too early"),
        (saved(p=POINTS + 1j), "real numbers are needed"),
        (saved(p="text"), "there is an array of class 4"),
        (saved(q=POINTS), "it has no variable p"),
    ],
)
def test_what_is_wrong_is_said(read, content, message):
    with pytest.raises(ValueError, match=message):
        read(content, "p")


def test_limits_on_nesting_size_and_decompressed_size(read, monkeypatch):
    deep = POINTS
    for _ in range(mat_files.DEEPEST):
        cell = np.empty((1, 1), dtype=object)
        cell[0, 0] = deep
        deep = cell
    with pytest.raises(ValueError, match="nested more than 16 deep"):
        read(saved(p=deep), "p")
    monkeypatch.setattr(mat_files, "MOST_BYTES", 2000)
    zeros = np.zeros((50, 20))
    with pytest.raises(ValueError, match="compressed data are too large, or cut off"):
        read(saved(True, p=zeros), "p")
    with pytest.raises(ValueError, match="it has more than"):
        read(saved(False, p=zeros), "p")


def test_no_change_of_bytes_ends_in_anything_but_a_value_or_a_valueerror(read):
    generator = random.Random(0)
    sound = [saved(c, image_info=nested(), annPoints=POINTS) for c in (False, True)] + [by_hand(">"), by_hand("<")]
    for i in range(1000):  # `make campaign` tries many more
        content = bytearray(generator.choice(sound))
        if i % 4 == 0:
            del content[generator.randrange(len(content)) :]
        else:
            content[generator.randrange(120, len(content))] = generator.randrange(256)
        for name in ("image_info", "annPoints", "p"):
            with contextlib.suppress(ValueError):
                read(bytes(content), name)
