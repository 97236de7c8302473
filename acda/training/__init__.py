"""Train the networks: recipes, tasks, datasets, scores, and the run that puts them together."""
