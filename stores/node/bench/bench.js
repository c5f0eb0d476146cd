// Compares Keyv over SQL with Keyv over the Redis protocol in one run: requests a second, and the processor time of
// server and client for each request. Server and client must be on this machine.
//
// npm install && npm install "$(npm pack --silent ..)" PGHOST=... PGDATABASE=... DOOR_URL=redis://...
// [REDIS_URL=redis://...] node bench.js [REQUESTS [ROUNDS]]
//
// The database needs the extension, and the server pgcache.resp_port. DOOR_URL names a role with privileges on its
// cache, and REDIS_URL a Redis, from which the keys that begin with "bench:" are removed.
import KeyvRedis from '@keyv/redis'
import Keyv from 'keyv'
import { readFileSync, readdirSync } from 'node:fs'
import pg from 'pg'
import { KeyvPgcache } from 'pgcache-stores/keyv'

const [requests = 20_000, rounds = 5] = process.argv.slice(2).map(Number)
const clients = 8
const value = { text: 'x'.repeat(400) }
const pool = new pg.Pool({ max: clients })
await pool.query(`SELECT cache_create('bench_unlogged', if_not_exists => true),
                         cache_create('bench_memory', storage => 'memory', if_not_exists => true)`)

// Returns the fields of /proc/PID/stat after the name, in hundredths of a second: a process's own time, and that of
// its children that have ended.
const ticks = stat => stat.slice(stat.lastIndexOf(')') + 2).split(' ')
const read = pid => { try { return ticks(readFileSync(`/proc/${pid}/stat`, 'latin1')) } catch { return null } }
const used = of => of.slice(11, 15).reduce((sum, tick) => sum + Number(tick), 0) * 10_000
const postgres = async () => {
  const parent = read((await pool.query('SELECT pg_backend_pid() AS pid')).rows[0].pid)[1]
  return () => readdirSync('/proc').filter(pid => /^\d+$/.test(pid)).map(pid => [pid, read(pid)])
    .filter(([pid, stat]) => stat && (pid === parent || stat[1] === parent)).reduce((sum, [, stat]) => sum + used(stat), 0)
}
const redis = async store => {
  const pid = /process_id:(\d+)/.exec(await (await store.getClient()).info('server'))[1]
  return () => used(read(pid))
}

const server = await postgres()
const sql = options => ({ store: new KeyvPgcache({ pool, ...options }), server })
const systems = {
  'SQL, memory': sql({ cache: 'bench_memory' }),
  'SQL, memory, prepared': sql({ cache: 'bench_memory', prepare: true }),
  'SQL, unlogged, prepared': sql({ cache: 'bench_unlogged', prepare: true })
}
if (process.env.DOOR_URL) systems['the door, memory'] = { store: new KeyvRedis(process.env.DOOR_URL), server }
if (process.env.REDIS_URL) {
  const store = new KeyvRedis(process.env.REDIS_URL)
  systems.Redis = { store, server: await redis(store) }
}

async function measure ({ keyv, server }, work) {
  let next = 0
  const client = async () => { while (next < requests) await work(keyv, `key ${next++ % 1000}`) }
  const [from, client0, server0] = [performance.now(), process.cpuUsage(), server()]
  await Promise.all(Array.from({ length: clients }, client))
  const seconds = (performance.now() - from) / 1000
  const { user, system } = process.cpuUsage(client0)
  return [requests / seconds, (server() - server0) / requests, (user + system) / requests]
}

const set = (keyv, key) => keyv.set(key, value, 600_000)
const get = async (keyv, key) => { if ((await keyv.get(key))?.text !== value.text) throw new Error(`${key} is not there`) }
const median = list => list.toSorted((a, b) => a - b)[list.length >> 1]
const results = {}
for (const [name, system] of Object.entries(systems)) {
  system.keyv = new Keyv({ store: system.store, namespace: 'bench', throwOnErrors: true })
  await measure(system, set)
}
for (let round = 0; round < rounds; round++) {
  for (const [name, system] of Object.entries(systems)) {
    for (const [what, work] of Object.entries({ get, set })) {
      (results[`${what}, ${name}`] ??= []).push(await measure(system, work))
    }
  }
}
for (const [what, runs] of Object.entries(results)) {
  const [rate, server, client] = [0, 1, 2].map(column => median(runs.map(run => run[column])))
  const spread = [Math.min, Math.max].map(of => Math.round(of(...runs.map(run => run[0]))))
  console.log(`${what.padEnd(30)} ${Math.round(rate)} requests/s (${spread.join(' to ')}), server ${server.toFixed(0)} µs, client ${client.toFixed(0)} µs`)
}
for (const { keyv } of Object.values(systems)) { await keyv.clear(); await keyv.disconnect() }
await pool.end()
