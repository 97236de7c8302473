"""Shared by all packages: optional imports, files written whole, circumstances of a figure, near names, drawing."""
