"""Every operator against loops over pixels, written from its definition in the paper; values, gradients, graphs."""

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from acda import compat
from acda.layers import Involution2d


def zero_outside(x: Tensor, b: int, c: int, i: int, j: int) -> Tensor | float:
    return x[b, c, i, j] if 0 <= i < x.shape[2] and 0 <= j < x.shape[3] else 0.0


def over(*sizes: int):
    return itertools.product(*map(range, sizes))


def first_seen(p: int, size: int, k: int, d: int) -> int:
    """NATTEN: the window's first pixel is the one (k-1)/2 steps before p, or as near to it as stays inside the map."""
    steps = range(p % d, size, d)  # the pixels that p can see
    wanted = list(steps).index(p) - k // 2
    return steps[min(max(wanted, 0), len(steps) - k)]


def loop_na2d_av(attn, value, k, d):
    y = torch.zeros_like(value)
    for b, h, p, q in over(*value.shape[:4]):
        top, left = first_seen(p, value.shape[2], k, d), first_seen(q, value.shape[3], k, d)
        for i, j in over(k, k):
            y[b, h, p, q] += attn[b, h, p, q, i * k + j] * value[b, h, top + i * d, left + j * d]
    return y


def loop_na2d_qk(query, key, k, d, rpb):
    attn = query.new_zeros(*query.shape[:4], k * k)
    for b, h, p, q in over(*query.shape[:4]):
        top, left = first_seen(p, query.shape[2], k, d), first_seen(q, query.shape[3], k, d)
        for i, j in over(k, k):
            y, x = top + i * d, left + j * d
            attn[b, h, p, q, i * k + j] = (query[b, h, p, q] * key[b, h, y, x]).sum()
            attn[b, h, p, q, i * k + j] += rpb[h, (y - p) // d + k - 1, (x - q) // d + k - 1]
    return attn


def loop_ska(x, w):
    y, k = torch.zeros_like(x), round(w.shape[2] ** 0.5)
    for b, c, p, q in over(*x.shape):
        for i, j in over(k, k):
            y[b, c, p, q] += w[b, c % w.shape[1], i * k + j, p, q] * zero_outside(
                x, b, c, p + i - k // 2, q + j - k // 2
            )
    return y


def loop_involution(x, weight, bias, stride, padding, dilation):
    B, groups, k, _, P, Q = weight.shape
    y = x.new_zeros(B, x.shape[1], P, Q)
    for b, c, p, q in over(*y.shape):
        group = c // (x.shape[1] // groups)
        for i, j in over(k, k):
            seen = zero_outside(x, b, c, p * stride - padding + i * dilation, q * stride - padding + j * dilation)
            y[b, c, p, q] += weight[b, group, i, j, p, q] * seen
    return y + bias[:, None, None]


def loop_ddf(x, channel, spatial, k, dilation, stride, combine):
    y = x.new_zeros(*x.shape[:2], x.shape[2] // stride, x.shape[3] // stride)
    for b, c, p, q in over(*y.shape):
        for i, j in over(k, k):
            own = spatial[b, i * k + j, p, q]
            if channel is not None:
                own = own * channel[b, c, i, j] if combine == "mul" else own + channel[b, c, i, j]
            offsets = (i - k // 2) * dilation, (j - k // 2) * dilation
            y[b, c, p, q] += own * zero_outside(x, b, c, p * stride + offsets[0], q * stride + offsets[1])
    return y


def loop_fac(x, kernel, k):
    y = torch.zeros_like(x)
    for b, c, p, q in over(*x.shape):
        for i, j in over(k, k):
            row = min(max(p + i - k // 2, 0), x.shape[2] - 1)
            column = min(max(q + j - k // 2, 0), x.shape[3] - 1)
            y[b, c, p, q] += kernel[b, c * k * k + i * k + j, p, q] * x[b, c, row, column]
    return y


def loop_carafe(x, masks, k, groups, s):
    y = x.new_zeros(*x.shape[:2], s * x.shape[2], s * x.shape[3])
    for b, c, p, q in over(*y.shape):
        group = c // (x.shape[1] // groups)
        for i, j in over(k, k):
            mask = masks[b, group * k * k + i * k + j, p, q]
            y[b, c, p, q] += mask * zero_outside(x, b, c, p // s + i - k // 2, q // s + j - k // 2)
    return y


CASES = {
    "na2d_av": (
        lambda a, v: compat.na2d_av(a, v, 3),
        lambda a, v: loop_na2d_av(a, v, 3, 1),
        [(2, 2, 5, 4, 9), (2, 2, 5, 4, 3)],
    ),
    "na2d_av, the map is one window": (
        lambda a, v: compat.na2d_av(a, v, (5, 5)),
        lambda a, v: loop_na2d_av(a, v, 5, 1),
        [(1, 1, 5, 6, 25), (1, 1, 5, 6, 2)],
    ),
    "na2d_av, a single tap": (
        lambda a, v: compat.na2d_av(a, v, 1),
        lambda a, v: loop_na2d_av(a, v, 1, 1),
        [(1, 2, 3, 2, 1), (1, 2, 3, 2, 2)],
    ),
    "na2d_av, dilation": (
        lambda a, v: compat.na2d_av(a, v, 3, dilation=2),
        lambda a, v: loop_na2d_av(a, v, 3, 2),
        [(1, 2, 7, 9, 9), (1, 2, 7, 9, 2)],
    ),
    "na2d_qk": (
        lambda q, k, r: compat.na2d_qk(q, k, 3, rpb=r),
        lambda q, k, r: loop_na2d_qk(q, k, 3, 1, r),
        [(2, 2, 5, 4, 3), (2, 2, 5, 4, 3), (2, 5, 5)],
    ),
    "na2d_qk, dilation": (
        lambda q, k, r: compat.na2d_qk(q, k, 3, (2, 2), rpb=r),
        lambda q, k, r: loop_na2d_qk(q, k, 3, 2, r),
        [(1, 2, 7, 8, 2), (1, 2, 7, 8, 2), (2, 5, 5)],
    ),
    "SKA": (compat.SKA(), loop_ska, [(2, 6, 4, 5), (2, 2, 9, 4, 5)]),
    "involution": (
        lambda x, w, b: compat.involution(x, w, b, 2, 2, 2),
        lambda x, w, b: loop_involution(x, w, b, 2, 2, 2),
        [(2, 4, 6, 5), (2, 2, 3, 3, 3, 3), (4,)],
    ),
    "DDF, product": (
        lambda x, c, s: compat.ddf(x, c, s, 3, 2),
        lambda x, c, s: loop_ddf(x, c, s, 3, 2, 1, "mul"),
        [(2, 3, 4, 5), (2, 3, 3, 3), (2, 9, 4, 5)],
    ),
    "DDF, sum": (
        lambda x, c, s: compat.ddf(x, c, s, 5, 1, 2, 1, "add"),
        lambda x, c, s: loop_ddf(x, c, s, 5, 1, 2, "add"),
        [(2, 3, 7, 6), (2, 3, 5, 5), (2, 25, 3, 3)],
    ),
    "DDF, spatial branch": (
        lambda x, s: compat.ddf(x, None, s, 3, stride=3),
        lambda x, s: loop_ddf(x, None, s, 3, 1, 3, "mul"),
        [(1, 3, 8, 7), (1, 9, 2, 2)],
    ),
    "FAC": (compat.KernelConv2D(5), lambda x, k: loop_fac(x, k, 5), [(2, 3, 4, 5), (2, 75, 4, 5)]),
    "CARAFE": (
        lambda x, m: compat.carafe(x, m, 3, 2, 2),
        lambda x, m: loop_carafe(x, m, 3, 2, 2),
        [(2, 4, 3, 4), (2, 18, 6, 8)],
    ),
    "CARAFE, same size": (
        lambda x, m: compat.carafe(x, m, 5),
        lambda x, m: loop_carafe(x, m, 5, 1, 1),
        [(1, 2, 4, 3), (1, 25, 4, 3)],
    ),
}
each_case = pytest.mark.parametrize(("ours", "definition", "shapes"), CASES.values(), ids=CASES)


@each_case
def test_values_and_gradients_are_those_of_the_definition(ours, definition, shapes):
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    y, expected = ours(*tensors), definition(*tensors)
    torch.testing.assert_close(y, expected)
    weight = torch.randn_like(expected)
    gradients = torch.autograd.grad((y * weight).sum(), tensors)
    torch.testing.assert_close(gradients, torch.autograd.grad((expected * weight).sum(), tensors))


@each_case
def test_half_precision_and_empty_batches_keep_dtype_and_shape(ours, definition, shapes):
    y = ours(*(torch.randn(shape, dtype=torch.bfloat16) for shape in shapes))
    assert y.dtype == torch.bfloat16
    if len(shapes[-1]) > 3:  # all of them have a batch
        empty = ours(*(torch.randn(0, *shape[1:]) for shape in shapes))
        assert empty.shape == (0, *y.shape[1:])


class Call(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.function(*tensors)


H, W = Dim("height", min=12, max=64), Dim("width", min=12, max=64)
GRAPHS = {
    "na2d_av": (
        lambda a, v: compat.na2d_av(a, v, 3),
        lambda h, w: [(1, 2, h, w, 9), (1, 2, h, w, 3)],
        [{2: H, 3: W}] * 2,
    ),
    "na2d_qk": (lambda q, k: compat.na2d_qk(q, k, 3), lambda h, w: [(1, 2, h, w, 3)] * 2, [{2: H, 3: W}] * 2),
    "SKA": (compat.ska, lambda h, w: [(1, 4, h, w), (1, 2, 9, h, w)], [{2: H, 3: W}, {3: H, 4: W}]),
    "involution": (
        lambda x, w: compat.involution(x, w, padding=1),
        lambda h, w: [(1, 4, h, w), (1, 2, 3, 3, h, w)],
        [{2: H, 3: W}, {4: H, 5: W}],
    ),
    "DDF": (
        lambda x, c, s: compat.ddf(x, c, s),
        lambda h, w: [(1, 4, h, w), (1, 4, 3, 3), (1, 9, h, w)],
        [{2: H, 3: W}, {}, {2: H, 3: W}],
    ),
    "FAC": (lambda x, k: compat.fac(x, k, 3), lambda h, w: [(1, 2, h, w), (1, 18, h, w)], [{2: H, 3: W}] * 2),
    "CARAFE": (
        lambda x, m: compat.carafe(x, m, 3, 1, 2),
        lambda h, w: [(1, 2, h, w), (1, 9, 2 * h, 2 * w)],
        [{2: H, 3: W}, {2: 2 * H, 3: 2 * W}],
    ),
}


# All of them call per_pixel_conv2d; involution does little else.
@pytest.mark.parametrize(
    "name", [name if name == "involution" else pytest.param(name, marks=pytest.mark.slow) for name in GRAPHS]
)
def test_the_exported_graph_runs_at_another_size(name):
    function, shapes, dynamic = GRAPHS[name]
    example = tuple(map(torch.randn, shapes(14, 16)))
    program = torch.export.export(Call(function), example, dynamic_shapes=(tuple(dynamic),))
    tensors = tuple(map(torch.randn, shapes(17, 13)))
    torch.testing.assert_close(program.module()(*tensors), function(*tensors))


def test_involution_is_the_operator_of_the_layer():
    layer, x = Involution2d(32, 32, 7, padding=3).eval(), torch.randn(1, 32, 9, 8)
    torch.testing.assert_close(compat.involution(x, layer.filters(x), layer.bias, padding=3), layer(x))


def zeros(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.zeros(shape) for shape in shapes]


V, X = (1, 2, 6, 6, 4), (1, 4, 6, 6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compat.na2d_av(*zeros((1, 2, 6, 6, 8), V), 3), r"\(1, 2, 6, 6, 9\); got \(1, 2, 6, 6, 8\)"),
        (lambda: compat.na2d_av(*zeros((2, 6, 6, 9), (2, 6, 6, 4)), 3), r"\(B, heads, H, W, D\); got \(2, 6, 6, 4\)"),
        (lambda: compat.na2d_av(*zeros((1, 2, 6, 6, 9), V), 3, 3), r"at least .* \(9, 9\) pixels; got \(6, 6\)"),
        (lambda: compat.na2d_av(*zeros((1, 2, 6, 6, 9), V), 3, is_causal=(True, False)), "causal masks"),
        (lambda: compat.na2d_av(*zeros((1, 2, 6, 6, 9), V), 3, additional_values=torch.zeros(1)), "additional"),
        (lambda: compat.na2d_av(*zeros((1, 2, 6, 6, 15), V), (3, 5)), "square"),
        (lambda: compat.na2d_qk(*zeros(V, (1, 2, 6, 6, 3)), 3), r"query's shape, \(1, 2, 6, 6, 4\); got"),
        (lambda: compat.na2d_qk(*zeros(V, V), 3, rpb=torch.zeros(2, 3, 3)), r"\(2, 5, 5\); got \(2, 3, 3\)"),
        (lambda: compat.ska(*zeros(X, (1, 2, 8, 6, 6))), r"\(B, G, k², H, W\); got \(1, 2, 8, 6, 6\)"),
        (lambda: compat.ska(*zeros(X, (1, 3, 9, 6, 6))), "divides the 4 channels; got 3"),
        (lambda: compat.ska(*zeros(X, (1, 2, 9, 6, 5))), r"\(1, 2, 3, 3, 6, 6\); got \(1, 2, 3, 3, 6, 5\)"),
        (lambda: compat.involution(*zeros(X, (1, 18, 6, 6))), r"\(B, groups, k, k, P, Q\); got \(1, 18, 6, 6\)"),
        (lambda: compat.involution(*zeros(X, (1, 3, 3, 3, 4, 4))), "groups=3 for 4 channels"),
        (lambda: compat.involution(*zeros(X, (1, 2, 3, 3, 4, 4), (2,))), r"\(4,\); got \(2,\)"),
        (lambda: compat.ddf(*zeros(X, (1, 4, 3, 3), (1, 9, 6, 5))), r"\(1, 9, 6, 6\); got \(1, 9, 6, 5\)"),
        (lambda: compat.ddf(*zeros(X, (1, 3, 3, 3), (1, 9, 6, 6))), r"\(1, 4, 3, 3\); got \(1, 3, 3, 3\)"),
        (lambda: compat.ddf(*zeros(X, (1, 4, 3, 3), (1, 9, 6, 6)), head=2), "head needs to be 1"),
        (lambda: compat.ddf(*zeros(X, (1, 4, 3, 3), (1, 9, 6, 6)), kernel_combine="max"), "got 'max'"),
        (lambda: compat.fac(*zeros(X, (1, 36, 6, 6)), 5), r"\(1, 100, 6, 6\); got \(1, 36, 6, 6\)"),
        (lambda: compat.carafe(*zeros(X, (1, 9, 12, 12)), 3), r"\(1, 9, 6, 6\); got \(1, 9, 12, 12\)"),
        (lambda: compat.carafe(*zeros(X, (1, 27, 6, 6)), 3, 3), "group_size=3 for 4 channels"),
    ],
)
def test_bad_shapes_are_refused_with_a_reason(call, message):
    with pytest.raises(ValueError, match=message):
        call()
