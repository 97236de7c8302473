"""Shared by all rooms: optional imports, files written whole, circumstances of a figure, near names, drawing."""
