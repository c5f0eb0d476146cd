// Tests a restart of the server while four connections are idle and no code of this process runs: each of the next
// four statements finds a dead connection.
import { execFileSync } from 'node:child_process'
import Keyv from 'keyv'
import pg from 'pg'
import { PgcacheStore } from 'pgcache-stores/express-session'
import { KeyvPgcache } from 'pgcache-stores/keyv'
import { expect, test } from 'vitest'

test('after a restart each store finds what is left', async () => {
  const pool = new pg.Pool({ max: 4 })
  const keyv = new Keyv(new KeyvPgcache({ pool, cache: 'texts' }), { throwOnErrors: true })
  const memory = new Keyv(new KeyvPgcache({ pool, cache: 'texts_memory' }), { throwOnErrors: true })
  const sessions = new PgcacheStore({ pool, cache: 'texts' })
  await keyv.set('key', 'value')
  await memory.set('key', 'value')
  await sessions.set('sid', { cookie: {}, user: 7 })
  await Promise.all([1, 2, 3, 4].map(() => pool.query('SELECT pg_sleep(0.2)')))
  expect(pool.idleCount).toBe(4)
  execFileSync('bash', ['-euc', 'restart_server'], { stdio: ['ignore', 'ignore', 'inherit'] })
  expect(await Promise.all([keyv.get('key'), memory.get('key'), sessions.get('sid'), keyv.set('other', 'value')])).toEqual([
    'value', undefined, { cookie: {}, user: 7 }, true
  ])
  await pool.end()
})
