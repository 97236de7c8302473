"""The GPU kernels, written in Triton."""
