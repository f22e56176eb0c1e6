"""Audits: verification of a store against its logs, and what-if estimates of other budgets."""
