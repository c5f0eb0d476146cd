"""The loads, as they were published, and what was published of them."""

from dataclasses import dataclass, replace

# A memory cache acts at once: there is no "all or none".
SYSTEMS = ("memory", "unlogged", "logged", "etcd")
NO_TRANSACTIONS = ("memory",)


@dataclass(frozen=True)
class Load:
    name: str
    title: str
    clients: int
    operations: int = 0
    seconds: float = 0
    published: str = ""
    etcd: str = ""  # what the same report gives for etcd v3

    @property
    def size(self) -> list:
        """Runs of one size belong together."""
        return [self.name, self.clients, self.operations, self.seconds]

    def runs_on(self, system: str) -> bool:
        return self.name != "transactions" or system not in NO_TRANSACTIONS

    def shortened(self, seconds: float) -> "Load":
        return replace(self, seconds=min(self.seconds, seconds))

    def shrunk(self) -> "Load":
        """Enough to see that it runs; the watchers stay as many as they are."""
        operations = self.operations if self.name == "watchers" else min(self.operations, 40)
        return replace(self, operations=operations, seconds=min(self.seconds, 1))


LOADS = (
    Load("half-puts", "50 clients, 1,000 operations each: half PUT, half GET", 50, 1000, published="921/s, mean 54 ms", etcd="about 1,500/s"),
    Load("puts", "20 clients, only PUT", 20, seconds=30, published="330/s in memory, 173/s on RocksDB", etcd="about 2,000/s"),
    Load(
        "everything", "30 clients: 40 % PUT, 40 % GET, 10 % RANGE, 10 % DELETE", 30, seconds=20,
        published="1,455/s in memory, 4,921/s on RocksDB",
    ),
    Load("watchers", "100 watchers, 1,000 events: 10 for each", 100, 1000, published="none lost", etcd="over 1,000 events/s"),
    Load("transactions", "10 clients, 1,000 transactions each over three keys", 10, 1000, published="no errors"),
)
