"""Counterfactual (off-policy) evaluation of other budgets, from the log."""
