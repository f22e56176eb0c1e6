"""Measuring: the optimum, baselines, trials."""

from deferkit.extras import needs

needs("study")
