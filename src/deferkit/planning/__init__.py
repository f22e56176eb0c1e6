"""Planning a budget: trials, needs, and the plan as text and page."""
