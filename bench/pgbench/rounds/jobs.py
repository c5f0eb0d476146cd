"""Which tool does which round of which system, with how many client threads."""

from dataclasses import dataclass

from . import tool_client, tool_pgbench, tool_redis_benchmark
from .systems import ROUNDS

TOOLS = {tool.NAME: tool for tool in (tool_pgbench, tool_redis_benchmark, tool_client)}

# Writing rounds come last: they grow what the others read.
REDIS_ROUNDS = (
    ("floor", ("redis-benchmark", "client")),
    ("read", ("redis-benchmark", "client")),
    ("mixed", ("client",)),
    ("write", ("client",)),
    ("set", ("redis-benchmark", "client")),  # for comparing the tools; fills the gaps that reads miss in
)
POSTGRES_FLOORS = (("floor", ("pgbench", "client")), ("floor_nolog", ("pgbench",)), ("floor_key", ("pgbench",)))
ASIDE = ("set", "floor_nolog", "floor_key")  # what a quick look leaves out
POSTGRES_ROUNDS = tuple((name, ("pgbench", "client")) for name in ROUNDS)


@dataclass(frozen=True)
class Job:
    round: str
    tool: str
    threads: int


def for_system(system, plan, repetition):
    """Every second repetition turns the order within a round, so that no tool always meets the grown table."""
    rounds = REDIS_ROUNDS if system.is_redis else (POSTGRES_FLOORS if system.floors else ()) + POSTGRES_ROUNDS
    jobs = []
    for name, tools in rounds:
        if plan.size == "quick" and name in ASIDE:
            continue
        variants = [Job(name, tool, threads) for tool in tools for threads in plan.threads]
        jobs += variants if repetition % 2 == 0 else variants[::-1]
    return jobs
