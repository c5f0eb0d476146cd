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


def rounds_of(system):
    if system.is_postgres:
        return (POSTGRES_FLOORS if system.floors else ()) + POSTGRES_ROUNDS
    if system.floors:
        return REDIS_ROUNDS
    return tuple((name, ("client",)) for name in ROUNDS)


def for_system(system, plan, repetition):
    """Every second repetition turns the order within a round, so that no tool always meets the grown table."""
    jobs = []
    for name, tools in rounds_of(system):
        if name in ASIDE and plan.size == "quick" or plan.tools and name not in ROUNDS:
            continue
        chosen = [tool for tool in tools if not plan.tools or tool in plan.tools]
        variants = [Job(name, tool, threads) for tool in chosen for threads in plan.threads]
        jobs += variants if repetition % 2 == 0 else variants[::-1]
    return jobs
