"""Figures, pages and the report; nothing here can change the result of a trial."""
