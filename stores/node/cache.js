// The entries of one cache of pgcache over node-postgres, which all stores of this package use.
//
// Each statement goes to the pool by itself, so none is part of a transaction of the application. If its connection
// breaks, it runs again on another one, unless running twice and running once differ in effect.
import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'

const AS_IT_IS = { text: true, encode: value => value, decode: value => value }

const hash = text => createHash('sha1').update(text).digest('hex')

// Returns NULL, which means the cache's own ttl, if there is no ttl or an infinite one.
const seconds = ttl => (Number.isFinite(ttl) ? ttl / 1000 : null)

// Returns whether the server or a pooler closed the connection. A server that refuses a new connection is not tried
// again at once.
const lost = ({ code = '', message = '' }) =>
  /^(57P0[12]|08|ECONNRESET$|EPIPE$)/.test(code) || /connection terminated|not queryable/i.test(message)

// `form` is the suffix of the SQL functions for the type of the cache's values. Calls that only check whether entries
// exist use the form for bytes, which works for every type.
const statements = (cache, form) => ({
  get: `SELECT cache_get${form}($1, ${cache})`,
  getMany: `SELECT value FROM cache_get_many${form}($1, ${cache})`,
  set: `SELECT cache_set${form}($1, $2, make_interval(secs => $3), ${cache})`,
  // In the order of the keys, in which all batches lock them. If a key comes twice, its last value counts.
  setMany: `SELECT count(cache_set${form}(key, value, make_interval(secs => ttl), ${cache}))
              FROM (SELECT * FROM unnest($1::text[], $2::${form ? 'bytea' : 'text'}[], $3::float8[])
                        WITH ORDINALITY AS batch (key, value, ttl, place) ORDER BY key COLLATE "C", place) AS batch`,
  delete: `SELECT cache_delete($1, ${cache})`,
  deleteMany: `SELECT cache_delete_many($1, ${cache}) > 0`,
  has: `SELECT cache_exists($1, ${cache})`,
  hasMany: `SELECT found FROM cache_lookup_many_bytes($1, ${cache})`,
  touch: `SELECT cache_touch($1, make_interval(secs => $2), ${cache})`,
  clear: `SELECT cache_clear(${cache})`,
  deletePrefix: `SELECT cache_delete_prefix($1, ${cache})`,
  entries: `SELECT key, value FROM cache_scan${form}($1, $2, $3, ${cache})`,
  keys: `SELECT key FROM cache_keys($1, $2, $3, ${cache})`,
  lease: `SELECT value, state, lease FROM cache_lease${form}($1, cache => ${cache})`,
  setLeased: `SELECT cache_set_leased${form}($1, $2, $3, make_interval(secs => $4), ${cache})`,
  release: `SELECT cache_release($1, $2, ${cache})`
})

export class Cache {
  #pool
  #own
  #codec
  #page
  #wait
  #statements = {}
  #loading = new Map()

  // Options that are not named here are passed to `new pg.Pool()`, if the store creates its own pool.
  constructor ({ pool, cache = 'pgcache.main', codec = AS_IT_IS, prepare = false, page = 1000, wait = 2000, ...connection } = {}) {
    this.#own = !pool
    this.#pool = pool ?? new pg.Pool(connection)
    // An idle connection that breaks causes an event of the pool, which without a listener ends the process. The pool
    // replaces the connection by itself.
    if (!this.#pool.listenerCount('error')) this.#pool.on('error', () => {})
    this.#codec = codec
    this.#page = page
    this.#wait = wait
    for (const [name, text] of Object.entries(statements(pg.escapeLiteral(cache), codec.text ? '' : '_bytes'))) {
      this.#statements[name] = { text, name: prepare ? hash(text) : undefined, rowMode: 'array' }
    }
  }

  async get (key) { return this.#decode((await this.#one('get', key))[0]) }

  async getMany (keys) { return (await this.#ask('getMany', keys)).map(([value]) => this.#decode(value)) }

  // A ttl is in milliseconds; without one the cache's own applies.
  async set (key, value, ttl) {
    if (ttl <= 0) await this.delete(key)
    else await this.#ask('set', key, this.#codec.encode(value), seconds(ttl))
    return true
  }

  // The same result as with `set` for each entry: if a key comes twice the last value counts, and an expired ttl
  // removes the entry.
  async setMany (entries) {
    const last = [...new Map(entries.map(entry => [entry.key, entry])).values()]
    const over = last.filter(({ ttl }) => ttl <= 0)
    if (over.length) await this.deleteMany(over.map(({ key }) => key))
    await this.#setAll(last.filter(({ ttl }) => !(ttl <= 0)))
    return entries.map(() => true)
  }

  async #setAll (entries) {
    if (!entries.length) return
    const column = of => entries.map(of)
    await this.#ask('setMany', column(({ key }) => key), column(({ value }) => this.#codec.encode(value)), column(({ ttl }) => seconds(ttl)))
  }

  async delete (key) { return (await this.#one('delete', key))[0] }

  async deleteMany (keys) { return (await this.#one('deleteMany', keys))[0] }

  async has (key) { return (await this.#one('has', key))[0] }

  async hasMany (keys) { return (await this.#ask('hasMany', keys)).map(([found]) => found) }

  async touch (key, ttl) {
    if (ttl <= 0) return this.delete(key)
    return (await this.#one('touch', key, seconds(ttl)))[0]
  }

  // Without a prefix it clears the whole cache, which requires the privilege TRUNCATE.
  async clear (prefix = '') { await (prefix ? this.#ask('deletePrefix', prefix) : this.#ask('clear')) }

  async * entries (prefix = '') {
    for await (const [key, value] of this.#pages('entries', prefix)) yield [key, this.#decode(value)]
  }

  async * keys (prefix = '') {
    for await (const [key] of this.#pages('keys', prefix)) yield key
  }

  // Returns the stored value, or stores and returns the result of `load`. Of all callers that miss a key at the same
  // time, in whatever process, one loads it; the others wait for it.
  remember (key, load, ttl) {
    const known = this.#loading.get(key)
    if (known) return known
    const loading = this.#load(key, load, ttl).finally(() => this.#loading.delete(key))
    this.#loading.set(key, loading)
    return loading
  }

  async end () { if (this.#own) await this.#pool.end() }

  async #load (key, load, ttl) {
    const [value, state, lease] = await this.#lease(key)
    if (state === 'hit' || state === 'stale') return this.#decode(value)
    const won = state === 'win' && lease !== null
    try {
      const loaded = await load()
      if (won) await this.#send(this.#statements.setLeased, [key, this.#codec.encode(loaded), lease, seconds(ttl)])
      return loaded
    } catch (error) {
      if (won) await this.#send(this.#statements.release, [key, lease]).catch(() => {})
      throw error
    }
  }

  // Waits here and not in the server: a wait there would occupy a session, of which a pooler has few, and the holder
  // of the lease needs one to store the value.
  async #lease (key) {
    const until = Date.now() + this.#wait
    for (let pause = 5; ; pause = Math.min(2 * pause, 100)) {
      const answer = await this.#one('lease', key)
      if (answer[1] !== 'busy' || Date.now() >= until) return answer
      await sleep(pause)
    }
  }

  // No statement stays open between two pages, so each page may be read in another session.
  async * #pages (statement, prefix) {
    let rows
    let last = null
    do {
      rows = await this.#ask(statement, prefix, last, this.#page)
      yield * rows
      last = rows.at(-1)?.[0]
    } while (rows.length === this.#page)
  }

  #decode (value) { return value === null ? undefined : this.#codec.decode(value) }

  async #one (name, ...values) { return (await this.#ask(name, ...values))[0] }

  // Each failure removes a broken connection from the pool, which notices it only when the connection is used. All
  // idle connections may be broken; after them the pool opens a new one.
  async #ask (name, ...values) {
    for (let again = Math.max(1, this.#pool.idleCount); ; again--) {
      try {
        return await this.#send(this.#statements[name], values)
      } catch (error) {
        if (again === 0 || !lost(error)) throw error
      }
    }
  }

  async #send (statement, values) { return (await this.#pool.query({ ...statement, values })).rows }
}
