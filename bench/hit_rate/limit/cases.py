"""The two published cases: a data set four times the limit, and what was published for each."""

from dataclasses import dataclass

MIB = 1024**2
OVER = 4  # the data set over the limit
GETS = 4  # for each key and pass


@dataclass(frozen=True)
class Case:
    name: str
    limit: int
    value_size: int
    must: float  # of pgcache, per byte of memory
    aim: float
    published: str

    @property
    def keys(self):
        """In fours, as the key law counts."""
        return self.limit * OVER // self.value_size // 4 * 4

    @property
    def gets(self):
        return self.keys * GETS

    @property
    def limit_mb(self):
        return self.limit // MIB

    def scaled(self, divisor):
        return self if divisor == 1 else Case(f"{self.name}-{divisor}", self.limit // divisor, *self._rest())

    def _rest(self):
        return self.value_size, self.must, self.aim, self.published


CASES = (
    Case(
        "2GiB",
        2048 * MIB,
        525_312,
        0.74,
        0.79,
        "memcached 70.88 % (per memory used 70.46 %), another cache 68.12 % (68.12 %), Redis allkeys-lru 56.41 % "
        "(56.41 %), a third 71.44 % but 40 % over its limit (49.31 %)",
    ),
    Case(
        "100MiB",
        100 * MIB,
        512,
        0.66,
        0.70,
        "memcached 63.77 %, another cache 62.04 %, Redis 58.68 %, a third 51.97 %",
    ),
)


def by_names(names):
    """A number is a case, too: values of so many bytes in a tier of the default size."""
    known = {case.name: case for case in CASES}
    return [of_value_size(int(name)) if name.isdigit() else known[name] for name in names]


def of_value_size(size):
    return Case(f"64MiB-{size}", 64 * MIB, size, 0.74, 0.79, "nothing")


def per_memory(hit_rate, used, limit):
    """What counts of a hit rate that was bought with more than the limit; less than the limit earns nothing."""
    return hit_rate / max(1.0, used / limit)
