"""Training data: one reader per dataset layout, and the toy patterns."""
