// Replaces connect-redis' store by ours in connect-redis' own test. CACHE names the cache; with BYTES its values are
// bytes.
import { PgcacheStore } from 'pgcache-stores/express-session'
import { v8codec } from '../caches.js'

export class RedisStore extends PgcacheStore {
  constructor ({ client }) {
    super({ pool: client.pool, cache: process.env.CACHE, ...(process.env.BYTES && { codec: jsonBytes }) })
  }
}

// The test compares values with the form that a date has in JSON.
const jsonBytes = { encode: session => v8codec.encode(JSON.stringify(session)), decode: bytes => JSON.parse(v8codec.decode(bytes)) }
