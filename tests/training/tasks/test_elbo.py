"""Each term of VDNet's objective against numerical integration, and the priors that it is made of."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from acda import create_model
from acda.models.variational import Posterior
from acda.training.tasks import elbo

NODES, WEIGHTS = np.polynomial.legendre.leggauss(400)
ALPHAS, BETAS = st.floats(1.5, 40), st.floats(0.01, 3)


def one(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def integral(function, low: float, high: float) -> float:
    """By Gauss-Legendre quadrature, which is exact up to rounding for these smooth functions."""
    half = (high - low) / 2
    return half * float(WEIGHTS @ function(low + half * (NODES + 1)))


def expectation(function, alpha: float, beta: float) -> float:
    """Over an inverse-gamma distribution, integrated over the logarithm, where the density is well-behaved."""
    density = stats.invgamma(alpha, scale=beta)
    low, high = np.log(density.ppf([1e-14, 1 - 1e-14]))
    return integral(lambda t: function(np.exp(t)) * density.pdf(np.exp(t)) * np.exp(t), low, high)


@given(ALPHAS, BETAS, st.floats(-1, 1), st.floats(-1, 1), st.floats(-6, 0))
def test_the_likelihood(alpha, beta, y, mean, log_variance):
    """Over z by its two moments, over the variance by integration."""
    q = Posterior(one(mean), one(log_variance), one(math.log(alpha)), one(math.log(beta)))
    squares = (y - mean) ** 2 + math.exp(log_variance)
    truth = expectation(lambda v: 0.5 * np.log(2 * math.pi * v) + squares / (2 * v), alpha, beta)
    assert float(elbo.negative_log_likelihood(q, one(y))) == pytest.approx(truth, rel=1e-5, abs=1e-5)


@given(st.floats(-1, 1), st.floats(-5, 1), st.floats(-1, 1), st.floats(0.05, 3))
def test_the_divergence_of_normal_distributions(mean, log_variance, prior_mean, prior_variance):
    q, p = stats.norm(mean, math.exp(log_variance / 2)), stats.norm(prior_mean, math.sqrt(prior_variance))
    width = 12 * math.exp(log_variance / 2)
    truth = integral(lambda z: q.pdf(z) * (q.logpdf(z) - p.logpdf(z)), mean - width, mean + width)
    ours = elbo.kl_normal(one(mean), one(log_variance), one(prior_mean), prior_variance)
    assert float(ours) == pytest.approx(truth, rel=1e-6, abs=1e-7)


@given(ALPHAS, BETAS, ALPHAS, BETAS)
def test_the_divergence_of_inverse_gamma_distributions(alpha, beta, prior_alpha, prior_beta):
    q, p = stats.invgamma(alpha, scale=beta), stats.invgamma(prior_alpha, scale=prior_beta)
    truth = expectation(lambda v: q.logpdf(v) - p.logpdf(v), alpha, beta)
    ours = elbo.kl_inverse_gamma(one(alpha), one(math.log(beta)), prior_alpha, one(math.log(prior_beta)))
    assert float(ours) == pytest.approx(truth, rel=1e-4, abs=1e-5)


def test_the_prior_is_most_likely_where_the_noise_was_measured():
    clean = torch.rand(1, 3, 20, 24, dtype=torch.float64)
    noisy = clean + 0.1 * torch.randn_like(clean)
    alpha, beta = elbo.prior_of_variance(noisy, clean)
    assert alpha == 49 / 2 - 1
    mode = beta / (alpha + 1)
    assert float(mode.mean()) == pytest.approx(0.01, rel=0.1)
    # The window's weights: the middle of a single bright residual gets the largest.
    spot = torch.zeros(1, 1, 9, 9, dtype=torch.float64)
    spot[0, 0, 4, 4] = 1
    _, around = elbo.prior_of_variance(spot, torch.zeros_like(spot))
    weights = (around / (alpha + 1))[0, 0, 1:8, 1:8]
    assert float(weights.sum()) == pytest.approx(1, abs=1e-6)
    assert int(weights.argmax()) == 24
    torch.testing.assert_close(weights, weights.flip(0))
    torch.testing.assert_close(weights, weights.T)
    assert float(weights[3, 6] / weights[3, 3]) == pytest.approx(math.exp(-((3 / 3) ** 2) / 2)), "a spread of 3"


def test_the_loss_is_the_sum_of_its_three_terms():
    """At a posterior far from the truth, where no term is small; each is integrated numerically."""
    torch.manual_seed(0)
    clean = torch.rand(1, 1, 2, 2, dtype=torch.float64)
    noisy = clean + 0.3 * torch.randn_like(clean)
    mean, variance = clean + 0.001 * torch.randn_like(clean), 1e-6 * (1 + torch.rand_like(clean))
    alpha, beta = 2 + 20 * torch.rand_like(clean), 0.5 + torch.rand_like(clean)
    q = Posterior(mean, variance.log(), alpha.log(), beta.log())
    torch.testing.assert_close(q.noise() ** 2, beta / (alpha + 1))
    prior_alpha, prior_beta = elbo.prior_of_variance(noisy, clean)
    terms = []
    for x, y, m, s, a, b, b0 in zip(
        *(t.flatten().tolist() for t in (clean, noisy, mean, variance, alpha, beta, prior_beta)), strict=True
    ):
        of_variance, prior = stats.invgamma(a, scale=b), stats.invgamma(prior_alpha, scale=b0)
        of_clean, near = stats.norm(m, s**0.5), stats.norm(x, elbo.CLEAN_VARIANCE**0.5)
        squares = of_clean.expect(lambda z, y=y: (y - z) ** 2)
        terms.append(expectation(lambda v, d=squares: 0.5 * np.log(2 * math.pi * v) + d / (2 * v), a, b))
        terms.append(of_clean.expect(lambda z, q=of_clean, p=near: q.logpdf(z) - p.logpdf(z)))
        terms.append(expectation(lambda v, q=of_variance, p=prior: q.logpdf(v) - p.logpdf(v), a, b))
    shares = np.abs(np.reshape(terms, (-1, 3))).mean(0)
    assert shares.min() > 0.01 * shares.max(), "a term that is left out would show"
    assert float(elbo.loss(q, noisy, clean)) == pytest.approx(sum(terms) / clean.numel(), rel=1e-4)


def test_the_loss_is_least_at_the_truth():
    """With the clean photo known and the noise's variance as measured, any change increases it."""
    torch.manual_seed(0)
    clean = torch.rand(1, 3, 16, 16, dtype=torch.float64)
    noisy = clean + 0.05 * torch.randn_like(clean)
    alpha, beta = elbo.prior_of_variance(noisy, clean)
    log_alpha = torch.full_like(clean, math.log(alpha + 0.5))
    right = Posterior(
        clean, torch.full_like(clean, math.log(1e-6)), log_alpha, (beta + 0.5 * (noisy - clean) ** 2).log()
    )
    least = elbo.loss(right, noisy, clean)
    for changed in (
        right._replace(mean=clean + 0.01),
        right._replace(log_variance=right.log_variance + 1),
        right._replace(log_alpha=log_alpha + 0.5),
        right._replace(log_beta=right.log_beta - 0.5),
    ):
        assert elbo.loss(changed, noisy, clean) > least


@pytest.mark.parametrize("name", ["restorer_variational", "vdnet"])
def test_networks_of_two_halves(name):
    torch.manual_seed(0)
    model = create_model(name)
    noisy = torch.rand(2, 3, 21, 30)
    q = model.posterior(noisy)
    for part in q:
        assert part.shape == noisy.shape
    torch.testing.assert_close(model(noisy), q.mean, rtol=0, atol=1e-5)
    assert (q.noise() > 0).all()
    loss = elbo.loss(q, noisy, noisy.clone())
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
