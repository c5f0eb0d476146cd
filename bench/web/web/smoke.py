"""What `make test` wants to know: both stores answer through the server, with what was set. No k6, no figures."""

from urllib.error import HTTPError
from urllib.request import Request, urlopen

from rounds import law
from rounds.check import insist as must


def ask(url, body=None):
    try:
        with urlopen(Request(url, data=body), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        return refused.code, ""


def insist(web, plan):
    offset = law.PGBENCH_OFFSET if web.store.system.is_postgres else 0
    value = law.value(plan.store.value_size)

    def get(number):
        return ask(f"{web.url}/get?key={law.PREFIX}{offset + number:012}")

    name = web.store.system.name
    must(get(1) == (200, value), f"{name}: a stored key answered {get(1)}")
    must(get(0)[0] == 404, f"{name}: an absent key answered {get(0)}")
    status, _ = ask(f"{web.url}/set?key={law.PREFIX}{offset:012}", b"set through the server")
    must(status == 204, f"{name}: a set answered {status}")
    must(get(0) == (200, "set through the server"), f"{name}: what was set answered {get(0)}")
