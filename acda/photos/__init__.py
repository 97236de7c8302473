"""Photos of users: files, exact tiles, trained weights; restore, count and classify."""
