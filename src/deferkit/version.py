"""The version, where both the package and its build can read it without importing the rest."""

__version__ = "0.2.0"
