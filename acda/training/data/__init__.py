"""Images to learn from: one reader per dataset layout, and the toy patterns."""
