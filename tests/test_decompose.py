import pytest
import torch

from acda import decompose_filters, fourier_bessel, multiscale_fourier_bessel


def rebuild(mixing, coefficients, bases):
    return torch.einsum("ocm,ml,lij->ocij", mixing, coefficients, bases.double())


def test_filters_in_the_span_are_found_exactly():
    bases = multiscale_fourier_bessel(7)
    weight = torch.einsum("ocm,ml,lij->ocij", torch.randn(8, 5, 3), torch.randn(3, 18), bases)
    mixing, coefficients, error = decompose_filters(weight, bases, num_atoms=3)
    assert error < 1e-6
    torch.testing.assert_close(rebuild(mixing, coefficients, bases).float(), weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_atoms", [1, 4, 6])
def test_no_other_atoms_are_nearer(num_atoms):
    """Compared with gradient descent on the same problem, from another start."""
    bases, weight = multiscale_fourier_bessel(5, 4).double(), torch.randn(6, 4, 5, 5).double()
    mixing, coefficients, error = decompose_filters(weight, bases, num_atoms)
    assert (weight - rebuild(mixing, coefficients, bases)).norm() / weight.norm() == pytest.approx(error)
    A = torch.randn(6, 4, num_atoms, dtype=torch.float64, requires_grad=True)
    alpha = torch.randn(num_atoms, 8, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([A, alpha], max_iter=400, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        value = (weight - rebuild(A, alpha, bases)).square().sum()
        value.backward()
        return value

    best = optimizer.step(loss).item()
    best = min(best, loss().item())
    assert best**0.5 / float(weight.norm()) == pytest.approx(error, rel=1e-4)


def test_more_atoms_than_there_are_directions_are_not_invented():
    mixing, coefficients, error = decompose_filters(torch.randn(4, 4, 3, 3), None, num_atoms=20)
    assert mixing.shape == (4, 4, 9)
    assert coefficients.shape == (9, 9)
    assert error < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_none_takes_as_many_atoms_as_the_filters_need(dtype):
    weight = torch.einsum("ocm,mij->ocij", torch.randn(8, 5, 4, dtype=dtype), torch.randn(4, 5, 5, dtype=dtype))
    mixing, coefficients, error = decompose_filters(weight, None, None)
    assert mixing.shape == (8, 5, 4)
    assert coefficients.shape == (4, 25)
    assert error < 1e-6


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"filters' own size, \(L, 5, 5\); got \(6, 3, 3\)"):
        decompose_filters(torch.randn(2, 2, 5, 5), fourier_bessel(3), 6)
    with pytest.raises(ValueError, match="num_atoms needs to be at least 1; got -1"):
        decompose_filters(torch.randn(2, 2, 3, 3), None, -1)


def test_zero_filters_have_no_error():
    assert decompose_filters(torch.zeros(2, 2, 3, 3), None, num_atoms=2).relative_error == 0
