"""Measuring: the optimum, baselines, trials."""
