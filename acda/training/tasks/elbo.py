"""VDNet's objective: the negative evidence lower bound for pairs of photos (Yue et al., 2019).

y is the noisy pixel, z the clean one, σ² the variance of the noise there; x is the measured clean pixel.

    y | z, σ² ~ N(z, σ²)          z ~ N(x, ε²)          σ² ~ IG(p²/2 − 1, p²ξ/2)

The last prior is what p² samples of squared noise with mean ξ would leave of an uninformed one: its most likely value
is ξ, the squared residual (y − x)² averaged over a p×p window with Gaussian weights. The networks give

    q(z) = N(μ, m²)          q(σ²) = IG(α, β)

and for any q the evidence is log p(y) = ELBO + KL(q ‖ posterior), so that maximising the ELBO

    E_q[log p(y | z, σ²)] − KL(q(z) ‖ p(z)) − KL(q(σ²) ‖ p(σ²))

brings q to the posterior. With ψ the digamma function, E_q[log σ²] = log β − ψ(α) and E_q[1/σ²] = α/β, all terms are in
closed form:

    −E_q[log p(y | z, σ²)] = ½ log 2π + ½ (log β − ψ(α)) + α/(2β) ((y − μ)² + m²)
    KL(q(z) ‖ p(z))        = ½ ((μ − x)² + m²)/ε² − ½ log(m²/ε²) − ½
    KL(q(σ²) ‖ p(σ²))      = (α − α₀) ψ(α) − log Γ(α) + log Γ(α₀) + α₀ log(β/β₀) + α (β₀/β − 1)
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from acda.models.variational import Posterior

# The spread is VDNet's: a pixel at the window's edge still weighs 0.6, so that nearly all p² of them count.
WINDOW, SPREAD = 7, 3.0
CLEAN_VARIANCE = 1e-6
# The prior of a patch without any noise would be at zero, where densities are infinite.
LEAST_VARIANCE = 1e-10


def loss(q: Posterior, noisy: Tensor, clean: Tensor) -> Tensor:
    """The negative ELBO, averaged over pixels and channels."""
    alpha, beta = prior_of_variance(noisy, clean)
    likelihood = negative_log_likelihood(q, noisy)
    of_clean = kl_normal(q.mean, q.log_variance, clean, CLEAN_VARIANCE)
    of_variance = kl_inverse_gamma(q.log_alpha.exp(), q.log_beta, alpha, beta.log())
    return (likelihood + of_clean + of_variance).mean()


def negative_log_likelihood(q: Posterior, noisy: Tensor) -> Tensor:
    """−E_q[log p(y | z, σ²)] of each pixel."""
    alpha = q.log_alpha.exp()
    squares = (noisy - q.mean).square() + q.log_variance.exp()
    precision = (q.log_alpha - q.log_beta).exp()
    return 0.5 * (math.log(2 * math.pi) + q.log_beta - torch.digamma(alpha) + precision * squares)


def kl_normal(mean: Tensor, log_variance: Tensor, prior_mean: Tensor, prior_variance: float) -> Tensor:
    """KL(N(μ, m²) ‖ N(x, ε²)) of each pixel."""
    distance = ((mean - prior_mean).square() + log_variance.exp()) / prior_variance
    return 0.5 * (distance - log_variance + math.log(prior_variance) - 1)


def kl_inverse_gamma(alpha: Tensor, log_beta: Tensor, prior_alpha: float, prior_log_beta: Tensor) -> Tensor:
    """KL(IG(α, β) ‖ IG(α₀, β₀)) of each pixel."""
    return (
        (alpha - prior_alpha) * torch.digamma(alpha)
        - torch.lgamma(alpha)
        + math.lgamma(prior_alpha)
        + prior_alpha * (log_beta - prior_log_beta)
        + alpha * ((prior_log_beta - log_beta).exp() - 1)
    )


def prior_of_variance(noisy: Tensor, clean: Tensor) -> tuple[float, Tensor]:
    """α₀ and β₀: the shape, and the scale of each pixel and channel from the squared residual around it."""
    samples = WINDOW**2
    distance = torch.arange(WINDOW, dtype=noisy.dtype, device=noisy.device) - WINDOW // 2
    taps = torch.exp(-0.5 * (distance / SPREAD).square())
    taps = (taps / taps.sum()).expand(noisy.shape[1], 1, 1, WINDOW)
    squares = F.pad((noisy - clean).square(), (WINDOW // 2,) * 4, mode="replicate")
    across = F.conv2d(squares, taps, groups=noisy.shape[1])
    local = F.conv2d(across, taps.transpose(2, 3), groups=noisy.shape[1])
    return samples / 2 - 1, samples / 2 * local.clamp_min(LEAST_VARIANCE)
