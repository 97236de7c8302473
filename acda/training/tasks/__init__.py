"""What is learned: loss, metrics and the Lightning module of each task."""
