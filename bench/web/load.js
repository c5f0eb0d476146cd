// k6: as many users as asked for, each waiting for its answer, no pause between requests. Keys follow the law of
// bench/pgbench/rounds/law.py: every fifth number of the layout is absent, new keys come from a space of their own.
import http from 'k6/http';
import { Counter } from 'k6/metrics';

const PREFIX = '6f1d7a52-3c08-4b9e-a5d4-';
const OFFSET = Number(__ENV.OFFSET);
const ENTRIES = Number(__ENV.ENTRIES);
const SLOTS = Math.floor(ENTRIES / 4) * 5;
const WRITES = { read: 0, mixed: 0.2, write: 1 }[__ENV.ROUND];
const VALUE = __ENV.VALUE;

const hits = new Counter('hits');
const misses = new Counter('misses');
const sets = new Counter('sets');
const failures = new Counter('failures');

export const options = {
  vus: Number(__ENV.USERS),
  duration: `${__ENV.SECONDS}s`,
  discardResponseBodies: true,
  summaryTrendStats: ['avg', 'p(50)', 'p(95)', 'p(99)', 'max'],
  // One name for all keys: a series for each would be what is measured.
  systemTags: ['status'],
};

const below = (end) => Math.floor(Math.random() * end);
const key = (number) => PREFIX + String(number).padStart(12, '0');

function drawWrite() {
  if (below(10) === 0) {
    const i = below(ENTRIES);
    return OFFSET + Math.floor(i / 4) * 5 + (i % 4) + 1;
  }
  return 200000000000 + below(800000000000);
}

export default function () {
  if (Math.random() < WRITES) {
    const answer = http.post(`${__ENV.URL}/set?key=${key(drawWrite())}`, VALUE);
    (answer.status === 204 ? sets : failures).add(1);
    return;
  }
  const answer = http.get(`${__ENV.URL}/get?key=${key(OFFSET + below(SLOTS))}`);
  ({ 200: hits, 404: misses }[answer.status] || failures).add(1);
}

export function handleSummary(found) {
  const count = (name) => (found.metrics[name] ? found.metrics[name].values.count : 0);
  const latency = found.metrics.http_req_duration.values;
  const seen = {
    tps: found.metrics.http_reqs.values.rate,
    requests: count('http_reqs'),
    hits: count('hits'),
    misses: count('misses'),
    sets: count('sets'),
    failures: count('failures'),
    mean_ms: latency.avg,
    p50_ms: latency['p(50)'],
    p95_ms: latency['p(95)'],
    p99_ms: latency['p(99)'],
  };
  return { stdout: JSON.stringify(seen) };
}
