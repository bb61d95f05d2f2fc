"""On-disk formats, one folder each."""
