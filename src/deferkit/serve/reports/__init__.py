"""Read models: standing, alarms, summaries, histories and series of policies."""
