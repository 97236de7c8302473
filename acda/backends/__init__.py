"""The ways to compute the operator. `reference` is the definition; every other backend is compared with it."""
