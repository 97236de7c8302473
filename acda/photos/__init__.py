"""A person's pictures: files, exact tiles, trained weights; photos restored, counted and classified."""
