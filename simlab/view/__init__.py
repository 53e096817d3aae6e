"""Pictures of runs: moments as plain arrays, and figures."""
