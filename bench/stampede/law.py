"""The four scenarios, and how many database queries a cache that does everything right would need.

Nothing here measures anything.
"""

from dataclasses import dataclass

# Share of the requests, and how many products share it: the load's law, as in client/src/visits.rs.
GROUPS = ((0.80, 50, False), (0.15, 450, False), (0.04, 4_500, False), (0.01, 1_000, True))


@dataclass(frozen=True)
class Published:
    hit_rate: float
    queries: float
    amplification: float


@dataclass(frozen=True)
class Scenario:
    name: str
    pool: int
    latency_ms: int
    ttl: float
    absent_ttl: float
    clients: int
    published: Published

    @property
    def capacity(self) -> float:
        """Queries a second that the pool can answer."""
        return self.pool / (self.latency_ms / 1000)


SCENARIOS = (
    Scenario("fast", 100, 90, 1, 0.5, 600, Published(0.9981, 982, 514)),
    Scenario("cloud", 20, 85, 5, 3, 100, Published(0.9961, 214, 235)),
    Scenario("shared", 13, 125, 10, 5, 100, Published(0.9859, 103, 70)),
    Scenario("constrained", 8, 190, 20, 10, 100, Published(0.9401, 42, 17)),
)


def published_requests(scenario: Scenario) -> float:
    """Requests a second behind the published figures."""
    return scenario.published.amplification * scenario.capacity


def queries_wanted(scenario: Scenario, requests: float, seconds: float) -> float:
    """Queries a second if each key is loaded when it is asked for and not fresh, and never twice at once.

    A key that is asked for at random times, `rate` times a second, is loaded once and then each time that
    the first request after its ttl comes: every ttl + 1 / rate seconds.
    """
    total = 0.0
    for share, keys, absent in GROUPS:
        rate = requests * share / keys
        ttl = scenario.absent_ttl if absent else scenario.ttl
        total += keys * min(rate * seconds, 1 + max(seconds - 1 / rate, 0) / (ttl + 1 / rate))
    return total / seconds


def attainable_hit_rate(scenario: Scenario, requests: float, seconds: float) -> float:
    """The hit rate that this traffic allows: the pool never gives more queries than its capacity."""
    return 1 - min(queries_wanted(scenario, requests, seconds), scenario.capacity) / requests


def hit_rate(requests: float, queries: float) -> float:
    return 1 - queries / requests


def amplification(scenario: Scenario, requests: float) -> float:
    return requests / scenario.capacity
