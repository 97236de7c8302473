"""A person's pictures: files, exact tiles, trained weights."""
