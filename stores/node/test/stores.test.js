// Tests behaviour that the frameworks' own tests do not cover.
import { createCache } from 'cache-manager'
import session from 'express-session'
import Keyv from 'keyv'
import Keyv6 from 'keyv-6'
import pg from 'pg'
import { Cache } from 'pgcache-stores'
import { PgcacheStore } from 'pgcache-stores/express-session'
import { KeyvPgcache, wrap } from 'pgcache-stores/keyv'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { caches, sleep, v8codec } from './caches.js'

const pool = new pg.Pool()
const ask = async (text, ...values) => Object.values((await pool.query(text, values)).rows[0])[0]
afterAll(() => pool.end())
beforeEach(() => pool.query("SELECT cache_clear(cache) FROM pgcache.caches WHERE cache::text ~ '^(texts|bytes|graced)'"))

describe.each(Object.entries(caches))('%s', (_what, options) => {
  const cache = new Cache({ pool, page: 7, ...options })

  test('a page ends where the keys of a prefix end, and no letter of a prefix is a pattern', async () => {
    const keys = Array.from({ length: 21 }, (_, n) => `a_${String(n).padStart(2, '0')}`)
    await cache.setMany([...keys, 'ab%', 'ab', 'b'].map(key => ({ key, value: `of ${key}` })))
    const seen = []
    for await (const [key, value] of cache.entries('a_')) seen.push([key, value])
    expect(seen).toEqual(keys.map(key => [key, `of ${key}`]))
    await cache.clear('a_')
    const left = []
    for await (const key of cache.keys()) left.push(key)
    expect(left).toEqual(['ab', 'ab%', 'b'])
  })

  test('of a key that comes twice in a batch the last value stays', async () => {
    await cache.setMany([{ key: 'z', value: '1' }, { key: 'a', value: '2' }, { key: 'z', value: '3' }])
    expect(await cache.getMany(['z', 'a', 'none'])).toEqual(['3', '2', undefined])
    expect(await cache.hasMany(['z', 'none'])).toEqual([true, false])
  })

  test('a ttl is milliseconds, for each entry of a batch, and without one it is the cache\'s own', async () => {
    const left = key => ask('SELECT round(extract(epoch FROM cache_ttl($1, $2::regclass)) * 1000)::int', key, options.cache)
    await cache.setMany([{ key: 'a', value: '1', ttl: 90_500 }, { key: 'b', value: '2', ttl: 30_000 }, { key: 'c', value: '3' }])
    expect(await left('a')).toBeGreaterThan(85_000)
    expect(await left('a')).toBeLessThanOrEqual(90_500)
    expect(await left('b')).toBeLessThanOrEqual(30_000)
    expect(await left('c')).toBe(null)
    expect(await cache.touch('c', 1_500)).toBe(true)
    expect(await left('c')).toBeLessThanOrEqual(1_500)
    await cache.set('a', '4', 20)
    await sleep(30)
    expect(await cache.get('a')).toBe(undefined)
    await cache.set('b', '5', 0)
    expect(await cache.has('b')).toBe(false)
    await cache.set('b', '6', Infinity)
    expect(await left('b')).toBe(null)
  })

  test('a ttl that is over removes its entry and keeps the others of the batch', async () => {
    await cache.setMany([{ key: 'a', value: '1' }, { key: 'b', value: '1' }, { key: 'c', value: '1' }])
    await cache.setMany([{ key: 'a', value: '2', ttl: -1 }, { key: 'b', value: '2', ttl: 60_000 }, { key: 'd', value: '2', ttl: -5 },
      { key: 'd', value: '3' }, { key: 'c', value: '2' }, { key: 'c', value: '3', ttl: 0 }])
    expect(await cache.getMany(['a', 'b', 'c', 'd'])).toEqual([undefined, '2', undefined, '3'])
    expect(await cache.touch('b', -1)).toBe(true)
    expect(await cache.get('b')).toBe(undefined)
  })

  test('of all callers that miss a key one loads it', async () => {
    // More caches than a pooler has sessions: a waiting one must not occupy any.
    const others = Array.from({ length: 8 }, () => new Cache({ ...options, wait: 10_000, max: 1 }))
    let loads = 0
    const load = async () => { await sleep(300); return `load ${++loads}` }
    const values = await Promise.all([...others, ...others].map(other => other.remember('key', load, 60_000)))
    expect(values).toEqual(Array(16).fill('load 1'))
    expect(loads).toBe(1)
    expect(await cache.get('key')).toBe('load 1')
    await Promise.all(others.map(other => other.end()))
  })

  test('a load that fails leaves the key to the next', async () => {
    await expect(cache.remember('key', async () => { throw new Error('no luck') })).rejects.toThrow('no luck')
    const from = Date.now()
    expect(await cache.remember('key', async () => 'luck')).toBe('luck')
    expect(Date.now() - from).toBeLessThan(1_500)
  })

  // A pooler may run each statement in another session.
  test.skipIf(process.env.POOLED)('prepared statements, of two caches over one connection', async () => {
    const one = new pg.Pool({ max: 1 })
    const [mine, main] = [options, {}].map(of => new Cache({ pool: one, prepare: true, ...of }))
    for (const value of ['1', '2']) {
      await mine.set('key', value)
      await main.set('key', `${value} of main`)
      expect([await mine.get('key'), await main.get('key')]).toEqual([value, `${value} of main`])
    }
    expect((await one.query('SELECT count(*)::int AS count FROM pg_prepared_statements')).rows[0].count).toBe(4)
    await one.end()
  })

  test('a connection that the server has ended is replaced', async () => {
    const broken = new pg.Pool({ max: 3 })
    const over = new Cache({ pool: broken, ...options })
    await over.set('key', 'value')
    const sessions = await Promise.all([1, 2, 3].map(() => broken.query('SELECT pg_backend_pid() AS pid, pg_sleep(0.2)')))
    await pool.query('SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) AS pid WHERE pid <> pg_backend_pid()', [sessions.map(({ rows }) => rows[0].pid)])
    expect(await over.get('key')).toBe('value')
    await broken.end()
  })
})

describe('what is said twice', () => {
  // Loses the connection during each statement that `lost` selects.
  const losing = lost => {
    const sent = []
    return {
      sent,
      idleCount: 0,
      listenerCount: () => 1,
      query: async ({ text }) => {
        const name = /cache_\w+/.exec(text)[0]
        sent.push(name)
        if (lost.includes(name)) throw Object.assign(new Error('terminating connection'), { code: '57P01' })
        return { rows: name === 'cache_lease' ? [[null, 'win', '7']] : [[true]] }
      }
    }
  }

  test('a statement that may be said twice is, and only twice', async () => {
    const pool = losing(['cache_set'])
    await expect(new Cache({ pool }).set('key', 'value')).rejects.toThrow('terminating connection')
    expect(pool.sent).toEqual(['cache_set', 'cache_set'])
  })

  test('what a lease stores is not', async () => {
    const pool = losing(['cache_set_leased'])
    await expect(new Cache({ pool }).remember('key', async () => 'value')).rejects.toThrow('terminating connection')
    expect(pool.sent).toEqual(['cache_lease', 'cache_set_leased', 'cache_release'])
  })

  test('what the server refuses is not', async () => {
    await expect(new Cache({ pool }).set('k'.repeat(3000), 'value')).rejects.toMatchObject({ code: '22001' })
  })
})

test('a pool has a listener for its errors, once', () => {
  const quiet = new pg.Pool()
  for (let store = 0; store < 3; store++) new Cache({ pool: quiet })
  expect(quiet.listenerCount('error')).toBe(1)
})

test('bytes are stored as they are', async () => {
  const cache = new Cache({ pool, cache: 'bytes', codec: { encode: bytes => bytes, decode: bytes => bytes } })
  const bytes = Buffer.from([0, 255, 92, 39])
  await cache.set('a', bytes)
  await cache.setMany([{ key: 'b', value: bytes }])
  expect(await ask("SELECT count(*)::int FROM bytes WHERE value = '\\x00ff5c27'")).toBe(2)
  expect(await cache.getMany(['a', 'b'])).toEqual([bytes, bytes])
})

describe('Keyv', () => {
  test('what it sets SQL reads, without its value when it has expired', async () => {
    const keyv = new Keyv(new KeyvPgcache({ pool, cache: 'texts' }), { namespace: 'shop' })
    await keyv.set('tea', { price: 24 }, 100)
    expect(await ask("SELECT cache_get_json('shop:tea', 'texts') #>> '{value,price}'")).toBe('24')
    await sleep(120)
    expect(await ask("SELECT cache_exists('shop:tea', 'texts')")).toBe(false)
  })

  test('without a namespace it clears all', async () => {
    const keyv = new Keyv({ store: new KeyvPgcache({ pool, cache: 'texts' }), namespace: '' })
    await keyv.set('a', 1)
    await keyv.clear()
    expect(await ask("SELECT cache_count('texts')")).toBe('0')
  })

  test.each([{}, { serialize: undefined, deserialize: undefined }])('wrap loads once, and get finds what it loaded %o', async of => {
    const options = 'serialize' in of ? { cache: 'bytes', codec: v8codec } : { cache: 'texts' }
    const [one, two] = [1, 2].map(() => new Keyv({ store: new KeyvPgcache({ pool, ...options }), namespace: 'shop', ...of }))
    let loads = 0
    const load = async () => { await sleep(100); return { load: ++loads } }
    expect(await Promise.all([wrap(one, 'tea', load, 60_000), wrap(two, 'tea', load, 60_000)])).toEqual([{ load: 1 }, { load: 1 }])
    expect(await one.get('tea')).toEqual({ load: 1 })
    expect(Number(await ask("SELECT extract(epoch FROM cache_ttl('shop:tea', $1::regclass))", options.cache))).toBeGreaterThan(50)
  })

  test('wrap gives the stale value to all but the one who loads', async () => {
    const keyv = new Keyv(new KeyvPgcache({ pool, cache: 'graced' }))
    const other = new Keyv(new KeyvPgcache({ pool, cache: 'graced' }))
    await keyv.set('tea', 'old', 50)
    await sleep(70)
    const loading = wrap(keyv, 'tea', async () => { await sleep(300); return 'new' }, 60_000)
    await sleep(100)
    expect(await wrap(other, 'tea', async () => 'not asked')).toBe('old')
    expect(await loading).toBe('new')
    expect(await other.get('tea')).toBe('new')
  })

  test('Keyv 6 takes it by its bridge', async () => {
    const [tea, pot] = ['tea', 'pot'].map(namespace => new Keyv6(new KeyvPgcache({ pool, cache: 'texts' }), { namespace }))
    await tea.set('a', { of: 'tea' }, 60_000)
    await pot.set('a', { of: 'pot' })
    await pot.setMany([{ key: 'b', value: 1, ttl: 30_000 }])
    expect([await tea.get('a'), await pot.get(['a', 'b', 'c'])]).toEqual([{ of: 'tea' }, [{ of: 'pot' }, 1, undefined]])
    expect(Number(await ask("SELECT extract(epoch FROM cache_ttl('tea::a', 'texts'))"))).toBeGreaterThan(50)
    expect(Number(await ask("SELECT extract(epoch FROM cache_ttl('pot::b', 'texts'))"))).toBeLessThanOrEqual(30)
    const seen = []
    for await (const entry of pot.iterator()) seen.push(entry)
    expect(seen).toEqual([['a', { of: 'pot' }], ['b', 1]])
    await pot.clear()
    expect([await pot.get('a'), await tea.get('a')]).toEqual([undefined, { of: 'tea' }])
  })

  test('cache-manager over it', async () => {
    const cache = createCache({ stores: [new Keyv(new KeyvPgcache({ pool, cache: 'texts' }))], ttl: 60_000 })
    await cache.mset([{ key: 'a', value: 1 }, { key: 'b', value: { two: 2 }, ttl: 1_000 }])
    expect(await cache.mget(['a', 'b', 'c'])).toEqual([1, { two: 2 }, undefined])
    expect((await cache.ttl('b')) - Date.now()).toBeLessThanOrEqual(1_000)
    let loads = 0
    const load = async () => ++loads
    expect(await cache.wrap('c', load)).toBe(1)
    expect(await cache.wrap('c', load)).toBe(1)
    await cache.set('d', 0, 500)
    expect(await cache.wrap('d', load, 60_000, 1_000)).toBe(0) // returns the stale value and refreshes it afterwards
    await sleep(100)
    expect(await cache.get('d')).toBe(2)
    await cache.mdel(['a', 'c'])
    expect(await cache.mget(['a', 'b', 'c'])).toEqual([undefined, { two: 2 }, undefined])
    await cache.clear()
    expect(await ask("SELECT cache_count('texts')")).toBe('0')
  })
})

describe('sessions', () => {
  const cookie = expires => Object.assign(new session.Cookie(), { expires })
  const soon = () => new Date(Date.now() + 60_000)
  const left = async sid => Number(await ask("SELECT extract(epoch FROM cache_ttl('sess:' || $1, 'texts'))", sid))

  test('a session lives as long as its cookie, or its ttl, or not at all', async () => {
    const store = new PgcacheStore({ pool, cache: 'texts', ttl: 20_000 })
    await store.set('a', { cookie: cookie(soon()), user: 7 })
    await store.set('b', { cookie: new session.Cookie() })
    expect(await left('a')).toBeGreaterThan(55)
    expect(await left('b')).toBeLessThanOrEqual(20)
    expect(await ask("SELECT cache_get_json('sess:a', 'texts') ->> 'user'")).toBe('7')
    await store.touch('b', { cookie: cookie(soon()) })
    expect(await left('b')).toBeGreaterThan(55)
    await store.set('a', { cookie: cookie(new Date(Date.now() - 1)) })
    expect(await store.get('a')).toBe(undefined)
    await new PgcacheStore({ pool, cache: 'texts', disableTouch: true }).touch('b', { cookie: cookie(new Date(Date.now() + 600_000)) })
    expect(await left('b')).toBeLessThan(61)
    await store.set('c', { cookie: { expires: 'no date', toJSON: () => ({}) } })
    expect(await left('c')).toBeLessThanOrEqual(20)
    expect(await left('c')).toBeGreaterThan(0)
  })

  test('a codec gets the cookie as it is sent, and keeps what JSON does not', async () => {
    const store = new PgcacheStore({ pool, cache: 'bytes', codec: v8codec })
    const expires = soon()
    await store.set('a', { cookie: cookie(expires), since: expires, seen: new Set([1]) })
    const found = await store.get('a')
    expect([found.cookie.expires, found.since, found.seen]).toEqual([expires, expires, new Set([1])])
    expect(store.createSession({ sessionStore: store, sessionID: 'a' }, found).cookie.expires).toEqual(expires)
  })

  test('errors go to the callback, and what a callback throws does not come back to it', async () => {
    const store = new PgcacheStore({ pool, cache: 'no_such_cache' })
    expect((await new Promise(resolve => store.get('a', resolve))).code).toBe('42P01')
    const thrown = new Promise(resolve => process.prependOnceListener('uncaughtException', resolve))
    const listeners = process.listeners('uncaughtException').slice(1)
    listeners.forEach(listener => process.off('uncaughtException', listener))
    let calls = 0
    new PgcacheStore({ pool, cache: 'texts' }).get('a', () => { calls++; throw new Error('of the callback') })
    expect((await thrown).message).toBe('of the callback')
    await sleep(20)
    listeners.forEach(listener => process.on('uncaughtException', listener))
    expect(calls).toBe(1)
  })
})
