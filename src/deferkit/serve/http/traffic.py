"""What has gone through the service: counts for the metrics."""

from bisect import bisect_left
from collections import Counter

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Traffic:
    """What has gone through."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()  # by method, path and status
        self.durations = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0

    def count(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request. The path is that of the route: a caller's words do not get into the metrics."""
        self.requests[method, path, status] += 1
        self.durations[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds
