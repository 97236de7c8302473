"""What every room uses: optional imports, files written whole, circumstances of a figure, near names, one look."""
