"""The three kernels: z from D, dD and dx from dz. Each is a product on tensor cores, accumulated in float32.

Layouts, dense: x (B, H, W, C)    D, dD (n, M, k²)    n: the pixels of one chunk, some lines of Q output pixels each
z and dz have an element for every pixel, atom and channel of the chunk, at the strides that are passed.

No two programs of a launch write the same element, so there are no races and no atomics, and the result does not
depend on the order in which they run. The interpreter runs them one after the other and would not notice: each kernel
says below why it holds.
"""

import triton
import triton.language as tl

# Sizes that change from chunk to chunk or from image to image. Without this list Triton would compile further variants
# of a kernel for sizes that happen to be 1 or multiples of 16.
CHANGING = ["H", "W", "P", "Q", "tiles", "tile_rows", "first_tile_row", "first_line", "lines", "group_stride"]


@triton.jit(do_not_specialize=CHANGING)
def z_kernel(
    x, D, z, H, W, C, P, Q, tiles, first_line,
    sy, sx, py, px, dy, dx, spacing,
    pixel_stride, atom_stride, channel_stride, group_stride, group_channels, channels_each,
    SIDE: tl.constexpr, M: tl.constexpr, PIXELS: tl.constexpr, ATOMS: tl.constexpr, STEP: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TAP_ROWS: tl.constexpr, BLOCK_C: tl.constexpr,
    GROUPED: tl.constexpr, PRECISION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """z[(pixel, atom), c] = Σ band[(pixel, atom), (i, v)] · x[(i, v), c]

    A program owns some pixels of one line, some atoms and some channels, and writes these and no others.
    """
    line, q0, g, pixel, m, alive = _rows(Q, tiles, spacing, M, PIXELS, ATOMS, ROWS)
    line += first_line
    first = tl.program_id(1) * channels_each
    to = z + pixel * pixel_stride + m * atom_stride
    HELD: tl.constexpr = TAP_ROWS >= SIDE
    if HELD:
        # The whole band fits in registers: it is gathered once for all channels.
        i, v, source, inside = _taps(x, line, q0, 0, H, W, C, P, sy, sx, py, px, dy, dx, SIDE, COLUMNS, TAP_ROWS)
        on, tap = _band(g, alive, i, v, SIDE, STEP)
        held = tl.load(D + (pixel * M + m)[:, None] * (SIDE * SIDE) + tap, mask=on, other=0.0)
    for c0 in range(first, tl.minimum(first + channels_each, C), BLOCK_C):
        c = c0 + tl.arange(0, BLOCK_C)
        total = tl.zeros((ROWS, BLOCK_C), tl.float32)
        if HELD:
            seen = tl.load(source[:, None] + c[None, :], mask=inside[:, None] & (c < C)[None, :], other=0.0)
            total = _dot(held, seen, total, PRECISION, INTERPRETED)
        else:
            for i0 in range(0, SIDE, TAP_ROWS):
                i, v, source, inside = _taps(
                    x, line, q0, i0, H, W, C, P, sy, sx, py, px, dy, dx, SIDE, COLUMNS, TAP_ROWS
                )
                on, tap = _band(g, alive, i, v, SIDE, STEP)
                band = tl.load(D + (pixel * M + m)[:, None] * (SIDE * SIDE) + tap, mask=on, other=0.0)
                seen = tl.load(source[:, None] + c[None, :], mask=inside[:, None] & (c < C)[None, :], other=0.0)
                total = _dot(band, seen, total, PRECISION, INTERPRETED)
        offset = _channels(c, channel_stride, group_stride, group_channels, GROUPED)
        tl.store(to[:, None] + offset[None, :], total.to(z.dtype.element_ty), mask=alive[:, None] & (c < C)[None, :])


@triton.jit(do_not_specialize=CHANGING)
def dD_kernel(
    x, dz, dD, H, W, C, P, Q, tiles, first_line,
    sy, sx, py, px, dy, dx, spacing,
    pixel_stride, atom_stride, channel_stride, group_stride, group_channels,
    SIDE: tl.constexpr, M: tl.constexpr, PIXELS: tl.constexpr, ATOMS: tl.constexpr, STEP: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TAP_ROWS: tl.constexpr, BLOCK_C: tl.constexpr,
    GROUPED: tl.constexpr, PRECISION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """dD[(pixel, atom), (i, v)] = Σ dz[(pixel, atom), c] · x[(i, v), c], of which the band is kept.

    A program owns some pixels of one line, some atoms and some rows of taps. Within it, a pixel's column v is one
    tap j, and only taps on the band are written.
    """
    line, q0, g, pixel, m, alive = _rows(Q, tiles, spacing, M, PIXELS, ATOMS, ROWS)
    line += first_line
    i0 = tl.program_id(1) * TAP_ROWS
    i, v, source, inside = _taps(x, line, q0, i0, H, W, C, P, sy, sx, py, px, dy, dx, SIDE, COLUMNS, TAP_ROWS)
    given = dz + pixel * pixel_stride + m * atom_stride
    total = tl.zeros((ROWS, TAP_ROWS * COLUMNS), tl.float32)
    for c0 in range(0, C, BLOCK_C):
        c = c0 + tl.arange(0, BLOCK_C)
        offset = _channels(c, channel_stride, group_stride, group_channels, GROUPED)
        seen = tl.load(source[:, None] + c[None, :], mask=inside[:, None] & (c < C)[None, :], other=0.0)
        grad = tl.load(given[:, None] + offset[None, :], mask=alive[:, None] & (c < C)[None, :], other=0.0)
        total = _dot(grad, tl.trans(seen), total, PRECISION, INTERPRETED)
    on, tap = _band(g, alive, i, v, SIDE, STEP)
    tl.store(dD + (pixel * M + m)[:, None] * (SIDE * SIDE) + tap, total.to(dD.dtype.element_ty), mask=on)


@triton.jit(do_not_specialize=CHANGING)
def dx_kernel(
    D, dz, grad_x, H, W, C, P, Q, tiles, tile_rows, first_tile_row, first_line, lines,
    sy, sx, py, px, dy, dx,
    pixel_stride, atom_stride, channel_stride, group_stride, group_channels,
    SIDE: tl.constexpr, M: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, INNER: tl.constexpr,
    BLOCK_C: tl.constexpr, GROUPED: tl.constexpr, PRECISION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """grad_x[(h, w), c] += Σ band[(h, w), (q, atom)] · dz[(q, atom), c] over the output lines p that see the tile.

    A program owns a tile of input pixels and some channels. It gathers from the output pixels whose windows hold the
    tile, so that nobody else adds to it; launches for other chunks come before or after, in the stream's order.
    """
    row = first_tile_row + tl.program_id(0) // tiles
    b = row // tile_rows
    h0 = row % tile_rows * HEIGHT
    w0 = tl.program_id(0) % tiles * WIDTH
    u = tl.arange(0, HEIGHT * WIDTH)
    h = h0 + u // WIDTH
    w = w0 + u % WIDTH
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    # Output lines and columns whose windows reach the tile, and of the lines those in this chunk. No numerator is
    # negative, because a GPU's division rounds towards zero.
    p_low = tl.maximum(tl.maximum(h0 + py - (SIDE - 1) * dy + sy - 1, 0) // sy, first_line - b * P)
    p_high = tl.minimum(tl.minimum((h0 + HEIGHT - 1 + py) // sy + 1, P), first_line + lines - b * P)
    q_low = tl.maximum(w0 + px - (SIDE - 1) * dx + sx - 1, 0) // sx
    q_high = tl.minimum((w0 + WIDTH - 1 + px) // sx + 1, Q)
    offset = _channels(c, channel_stride, group_stride, group_channels, GROUPED)
    total = tl.zeros((HEIGHT * WIDTH, BLOCK_C), tl.float32)
    for inner in range(0, (q_high - q_low) * M, INNER):
        n = inner + tl.arange(0, INNER)
        q = q_low + n // M
        m = n % M
        across = (w + px)[:, None] - (q * sx)[None, :]
        j = across // dx
        on = (across >= 0) & (j < SIDE) & (j * dx == across) & (q < q_high)[None, :]
        from_D = D + (q * M + m)[None, :] * (SIDE * SIDE) + j
        from_dz = dz + (q * pixel_stride + m * atom_stride)[:, None] + offset[None, :]
        there = (q < q_high)[:, None] & (c < C)[None, :]
        for p in range(p_low, p_high):
            before = (b * P + p - first_line) * Q
            down = h + py - p * sy
            i = down // dy
            sees = (down >= 0) & (i < SIDE) & (i * dy == down)
            band = tl.load(
                from_D + before * (M * SIDE * SIDE) + (i * SIDE)[:, None], mask=on & sees[:, None], other=0.0
            )
            grad = tl.load(from_dz + before * pixel_stride, mask=there, other=0.0)
            total = _dot(band, grad, total, PRECISION, INTERPRETED)
    to = grad_x + ((b * H + h).to(tl.int64) * W + w)[:, None] * C + c[None, :]
    mask = ((h < H) & (w < W))[:, None] & (c < C)[None, :]
    tl.store(to, tl.load(to, mask=mask, other=0.0) + total, mask=mask)


@triton.jit
def _rows(
    Q, tiles, spacing, M: tl.constexpr, PIXELS: tl.constexpr, ATOMS: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """A program's line of the chunk, its first column, and of each row: pixel of the group and of the chunk, atom."""
    tile = tl.program_id(0) % tiles
    line = tl.program_id(0) // tiles
    q0 = tile % spacing + tile // spacing * (PIXELS * spacing)
    row = tl.arange(0, ROWS)
    g = row // ATOMS
    q = q0 + g * spacing
    m = tl.program_id(2) * ATOMS + row % ATOMS
    return line, q0, g, line * Q + q, m, (g < PIXELS) & (q < Q) & (m < M)


@triton.jit
def _taps(
    x, line, q0, i0, H, W, C, P, sy, sx, py, px, dy, dx,
    SIDE: tl.constexpr, COLUMNS: tl.constexpr, TAP_ROWS: tl.constexpr,
):  # fmt: skip
    """The taps (i, v) that a group of pixels sees from row i0 on: where they lie in x, and whether inside of it."""
    tap = tl.arange(0, TAP_ROWS * COLUMNS)
    i = i0 + tap // COLUMNS
    v = tap % COLUMNS
    h = line % P * sy - py + i * dy
    w = q0 * sx - px + v * dx
    inside = (i < SIDE) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
    # An image may have more elements than int32 can count; D and z have not, they hold one chunk.
    return i, v, x + ((line // P * H + h).to(tl.int64) * W + w) * C, inside


@triton.jit
def _band(g, alive, i, v, SIDE: tl.constexpr, STEP: tl.constexpr):
    """Which elements of the product lie on the band, and which of the k² taps they are."""
    j = v[None, :] - g[:, None] * STEP
    return alive[:, None] & (j >= 0) & (j < SIDE) & (i < SIDE)[None, :], (i * SIDE)[None, :] + j


@triton.jit
def _channels(c, channel_stride, group_stride, group_channels, GROUPED: tl.constexpr):
    """Where the channels of a pixel and an atom lie in z. Without groups there is no division, and loads stay wide."""
    if GROUPED:
        return c // group_channels * group_stride + c % group_channels * channel_stride
    else:  # noqa: RET505  Triton compiles both arms unless one is excluded here
        return c * channel_stride


@triton.jit
def _dot(a, b, total, PRECISION: tl.constexpr, INTERPRETED: tl.constexpr):
    """a·b + total. The interpreter would multiply the bit patterns of bfloat16, and gets float32 instead."""
    if INTERPRETED:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, total, input_precision=PRECISION)
