"""Damaged and hostile files: a structure-aware mutation test. ``python -m tests.bad_input --help`` runs it by hand."""
